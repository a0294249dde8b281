package kube

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// metadataOnly requests only the metadata of the objects in a list, about a tenth of a Pod's size:
// https://kubernetes.io/docs/reference/using-api/api-concepts/#metadata-only-fetches
const metadataOnly = runtime.ContentTypeProtobuf + ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

// unfinishedPods selects Pods that are not finished, including those that are being deleted.
const unfinishedPods = "status.phase!=Succeeded,status.phase!=Failed"

// ListActivePods returns the names of the active Pods that match the label selector; see IsActive. It reads only their metadata.
func (c *Client) ListActivePods(ctx context.Context, labels string) (names []string, err error) {
	conn := c.connect("/api", corev1.SchemeGroupVersion, addMetadata)
	conn.accept = metadataOnly
	pods := newResource[metav1.PartialObjectMetadata, metav1.PartialObjectMetadataList](conn, "Pod", "pods")
	list, err := pods.List(ctx, Selection{Labels: labels, Fields: unfinishedPods})
	for _, pod := range list.Items {
		if pod.DeletionTimestamp == nil {
			names = append(names, pod.Name)
		}
	}
	return names, err
}

func addMetadata(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(metav1.SchemeGroupVersion, &metav1.PartialObjectMetadata{}, &metav1.PartialObjectMetadataList{})
	return nil
}

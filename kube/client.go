package kube

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"bosh-kubernetes-cpi/kube/extension"
)

// Client accesses the objects of one namespace, and those of the cluster that have none. Use New to create one.
type Client struct {
	Pods     *Resource[*corev1.Pod, *corev1.PodList]
	Secrets  *Resource[*corev1.Secret, *corev1.SecretList]
	PVCs     *Resource[*corev1.PersistentVolumeClaim, *corev1.PersistentVolumeClaimList]
	Events   *Resource[*corev1.Event, *corev1.EventList]
	Services *Resource[*corev1.Service, *corev1.ServiceList]
	// PodTemplates are those of recreated VMs.
	PodTemplates *Resource[*corev1.PodTemplate, *corev1.PodTemplateList]
	// PVs have no namespace.
	PVs *Resource[*corev1.PersistentVolume, *corev1.PersistentVolumeList]
	// Nodes have no namespace.
	Nodes *Resource[*corev1.Node, *corev1.NodeList]

	// Namespace is the namespace of every object of a kind that has one.
	Namespace string

	config      *rest.Config
	retryPolicy retryPolicy
}

// New returns a client, without sending a request. Each request of the client is repeated for up to retryTimeout while the API
// server cannot be reached. New fails if the options name no usable kubeconfig or service account.
//
// It registers few kinds: the scheme of the full clientset costs every process 18 MiB and 10 ms, and all kinds of core/v1 cost
// 4 % of a call's CPU time.
func New(options Options, retryTimeout time.Duration) (*Client, error) {
	config, namespace, err := options.restConfig()
	if err != nil {
		return nil, err
	}
	config.UserAgent = Component
	return NewFor(config, namespace, retryTimeout)
}

// NewFor is New for known connection settings.
func NewFor(config *rest.Config, namespace string, retryTimeout time.Duration) (*Client, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1 // the server's priority and fairness does the throttling
	client := &Client{
		Namespace:   namespace,
		config:      config,
		retryPolicy: retryPolicy{timeout: retryTimeout, autoRenewed: hasAutoRenewal(config)},
	}
	via, err := client.connect("/api", corev1.SchemeGroupVersion, addCoreKinds)
	if err != nil {
		return nil, err
	}
	client.Pods = newResource(via, "Pod", "pods", newOf[corev1.Pod], newOf[corev1.PodList])
	client.Secrets = newResource(via, "Secret", "secrets", newOf[corev1.Secret], newOf[corev1.SecretList])
	client.PVCs = newResource(via, "PersistentVolumeClaim", "persistentvolumeclaims",
		newOf[corev1.PersistentVolumeClaim], newOf[corev1.PersistentVolumeClaimList])
	client.Events = newResource(via, "Event", "events", newOf[corev1.Event], newOf[corev1.EventList])
	client.Services = newResource(via, "Service", "services", newOf[corev1.Service], newOf[corev1.ServiceList])
	client.PodTemplates = newResource(via, "PodTemplate", "podtemplates", newOf[corev1.PodTemplate], newOf[corev1.PodTemplateList])
	via.namespace = ""
	client.PVs = newResource(via, "PersistentVolume", "persistentvolumes", newOf[corev1.PersistentVolume], newOf[corev1.PersistentVolumeList])
	client.Nodes = newResource(via, "Node", "nodes", newOf[corev1.Node], newOf[corev1.NodeList])
	return client, nil
}

// addCoreKinds registers the kinds of the Client's fields, and the options of their requests.
func addCoreKinds(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(corev1.SchemeGroupVersion,
		&corev1.Pod{}, &corev1.PodList{}, &corev1.PodLogOptions{}, &corev1.Secret{}, &corev1.SecretList{},
		&corev1.PersistentVolumeClaim{}, &corev1.PersistentVolumeClaimList{}, &corev1.Event{}, &corev1.EventList{},
		&corev1.Service{}, &corev1.ServiceList{}, &corev1.PodTemplate{}, &corev1.PodTemplateList{},
		&corev1.PersistentVolume{}, &corev1.PersistentVolumeList{}, &corev1.Node{}, &corev1.NodeList{})
	return nil
}

// PodDisruptionBudgets returns the namespace's PodDisruptionBudgets. Few calls need them, so their API group gets a connection only
// here.
func (c *Client) PodDisruptionBudgets() (*Resource[*policyv1.PodDisruptionBudget, *policyv1.PodDisruptionBudgetList], error) {
	via, err := c.connect("/apis", policyv1.SchemeGroupVersion, policyv1.AddToScheme)
	if err != nil {
		return nil, err
	}
	return newResource(via, "PodDisruptionBudget", "poddisruptionbudgets",
		newOf[policyv1.PodDisruptionBudget], newOf[policyv1.PodDisruptionBudgetList]), nil
}

// connect returns a connection for the kinds of one API group. Objects are sent as protobuf and patched with strategic merge
// patches, except those in extension.Groups: JSON, and JSON merge patches.
func (c *Client) connect(path string, group schema.GroupVersion, register func(*runtime.Scheme) error) (connection, error) {
	scheme := runtime.NewScheme()
	if err := register(scheme); err != nil {
		return connection{}, err
	}
	metav1.AddToGroupVersion(scheme, group)
	config := rest.CopyConfig(c.config)
	rereadRejectedToken(config)
	config.APIPath, config.GroupVersion = path, &group
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	via := connection{codec: runtime.NewParameterCodec(scheme), namespace: c.Namespace, group: group,
		patches: types.MergePatchType, config: c.config, retryPolicy: c.retryPolicy}
	if !slices.Contains(extension.Groups, group) {
		config.ContentType = runtime.ContentTypeProtobuf
		config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
		via.patches = types.StrategicMergePatchType
	}
	var err error
	via.client, err = rest.RESTClientFor(config)
	via.retryPolicy.isStarting = startupCheck(via.client)
	return via, err
}

type connection struct {
	client    rest.Interface
	codec     runtime.ParameterCodec
	namespace string
	group     schema.GroupVersion
	patches   types.PatchType
	accept    string // media type of the answers; "" for that of the client

	config      *rest.Config // for messages about the credentials
	retryPolicy retryPolicy
}

func newOf[T any]() *T { return new(T) }

func newResource[T object, L runtime.Object](via connection, kind, plural string, newT func() T, newL func() L) *Resource[T, L] {
	return &Resource[T, L]{
		requests: requests[T, L]{connection: via, plural: plural, newObject: newT, newList: newL}, kind: kind,
	}
}

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/test/bench/report"
	"bosh-kubernetes-cpi/test/embedded"
)

// objectSizes returns the sizes in etcd of the template's objects.
func objectSizes(ctx context.Context, plane *embedded.ControlPlane, namespace string, s vmTemplate) ([]report.Object, error) {
	objects := []report.Object{
		{Name: "VM Pod", Scripts: scriptBytes(s.vmPod)},
		{Name: "Secret with the agent settings"},
		{Name: "attachment Pod", Scripts: scriptBytes(s.attachmentPod)},
		{Name: "PVC of a disk"},
		{Name: "PersistentVolume of a disk"},
	}
	for i, key := range []string{
		"pods/" + namespace + "/" + s.vmCID, "secrets/" + namespace + "/" + s.vmCID, "pods/" + namespace + "/" + manifest.AttachmentName(s.disk),
		"persistentvolumeclaims/" + namespace + "/" + s.disk, "persistentvolumes/" + s.pv.Name,
	} {
		stored, err := getFromEtcd(ctx, plane, "/registry/"+key)
		if err != nil {
			return nil, err
		}
		objects[i].Bytes = len(stored)
	}
	return objects, nil
}

// scriptBytes returns the size of the commands and scripts in the Pod.
func scriptBytes(pod *corev1.Pod) int {
	var size int
	for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		words := slices.Concat(container.Command, container.Args)
		if life := container.Lifecycle; life != nil {
			for _, hook := range []*corev1.LifecycleHandler{life.PostStart, life.PreStop} {
				if hook != nil && hook.Exec != nil {
					words = append(words, hook.Exec.Command...)
				}
			}
		}
		for _, probe := range []*corev1.Probe{container.ReadinessProbe, container.LivenessProbe, container.StartupProbe} {
			if probe != nil && probe.Exec != nil {
				words = append(words, probe.Exec.Command...)
			}
		}
		for _, word := range words {
			size += len(word)
		}
	}
	return size
}

// getFromEtcd returns a key's value.
func getFromEtcd(ctx context.Context, plane *embedded.ControlPlane, key string) ([]byte, error) {
	var result struct {
		Values []struct {
			Value []byte `json:"value"`
		} `json:"kvs"`
	}
	if err := callEtcd(ctx, plane, "range", map[string][]byte{"key": []byte(key)}, &result); err != nil {
		return nil, err
	}
	if len(result.Values) != 1 {
		return nil, fmt.Errorf("etcd has %d values of %s", len(result.Values), key)
	}
	return result.Values[0].Value, nil
}

// callEtcd sends a request to etcd's JSON gateway.
func callEtcd(ctx context.Context, plane *embedded.ControlPlane, method string, parameters, result any) error {
	body, err := json.Marshal(parameters)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, fmt.Sprintf("http://127.0.0.1:%d/v3/kv/%s", plane.EtcdPort, method), bytes.NewReader(body))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		reason, _ := io.ReadAll(io.LimitReader(response.Body, 500))
		return fmt.Errorf("etcd's %s: %s: %s", method, response.Status, reason)
	}
	return json.NewDecoder(response.Body).Decode(result)
}

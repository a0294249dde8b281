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
	"bosh-kubernetes-cpi/test/harness/embedded"
)

// objectSizes returns how many bytes each object of the VM template occupies in etcd.
func objectSizes(ctx context.Context, plane *embedded.ControlPlane, namespace string, template vmTemplate) ([]report.Object, error) {
	objects := []report.Object{
		{Name: "VM Pod", Scripts: scriptBytes(template.vmPod)},
		{Name: "Secret with the agent settings"},
		{Name: "attachment Pod", Scripts: scriptBytes(template.attachmentPod)},
		{Name: "PVC of a disk"},
		{Name: "PersistentVolume of a disk"},
	}
	for i, key := range []string{
		"pods/" + namespace + "/" + template.vmCID, "secrets/" + namespace + "/" + template.vmCID, "pods/" + namespace + "/" + manifest.AttachmentName(template.disk),
		"persistentvolumeclaims/" + namespace + "/" + template.disk, "persistentvolumes/" + template.pv.Name,
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
		args := slices.Concat(container.Command, container.Args)
		if lifecycle := container.Lifecycle; lifecycle != nil {
			for _, hook := range []*corev1.LifecycleHandler{lifecycle.PostStart, lifecycle.PreStop} {
				if hook != nil && hook.Exec != nil {
					args = append(args, hook.Exec.Command...)
				}
			}
		}
		for _, probe := range []*corev1.Probe{container.ReadinessProbe, container.LivenessProbe, container.StartupProbe} {
			if probe != nil && probe.Exec != nil {
				args = append(args, probe.Exec.Command...)
			}
		}
		for _, arg := range args {
			size += len(arg)
		}
	}
	return size
}

// getFromEtcd returns the value stored under the key.
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
		return nil, fmt.Errorf("get key %s from etcd: got %d values instead of 1", key, len(result.Values))
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
		return fmt.Errorf("etcd request %s: %s: %s", method, response.Status, reason)
	}
	return json.NewDecoder(response.Body).Decode(result)
}

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

	"bosh-kubernetes-cpi/kube/manifest"
	"bosh-kubernetes-cpi/test/bench/figures"
	"bosh-kubernetes-cpi/test/embedded"
)

// objectSizes reads from etcd what a machine with a disk takes there.
func objectSizes(ctx context.Context, plane *embedded.ControlPlane, namespace string, s seed) ([]figures.Object, error) {
	objects := []figures.Object{
		{Name: "a machine's Pod", Scripts: scripts(s.machine)},
		{Name: "a machine's Secret"},
		{Name: "an attachment's Pod", Scripts: scripts(s.attachment)},
		{Name: "a disk's claim"},
		{Name: "a disk's volume"},
	}
	for i, key := range []string{
		"pods/" + namespace + "/" + s.vm, "secrets/" + namespace + "/" + s.vm, "pods/" + namespace + "/" + manifest.AttachmentName(s.disk),
		"persistentvolumeclaims/" + namespace + "/" + s.disk, "persistentvolumes/" + s.volume.Name,
	} {
		stored, err := inEtcd(ctx, plane, "/registry/"+key)
		if err != nil {
			return nil, err
		}
		objects[i].Bytes = len(stored)
	}
	return objects, nil
}

// scripts is how much of the Pod is what its containers run.
func scripts(pod *corev1.Pod) int {
	var text int
	for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		said := slices.Concat(container.Command, container.Args)
		if life := container.Lifecycle; life != nil {
			for _, hook := range []*corev1.LifecycleHandler{life.PostStart, life.PreStop} {
				if hook != nil && hook.Exec != nil {
					said = append(said, hook.Exec.Command...)
				}
			}
		}
		for _, probe := range []*corev1.Probe{container.ReadinessProbe, container.LivenessProbe, container.StartupProbe} {
			if probe != nil && probe.Exec != nil {
				said = append(said, probe.Exec.Command...)
			}
		}
		for _, each := range said {
			text += len(each)
		}
	}
	return text
}

// inEtcd returns a key's value.
func inEtcd(ctx context.Context, plane *embedded.ControlPlane, key string) ([]byte, error) {
	var found struct {
		Values []struct {
			Value []byte `json:"value"`
		} `json:"kvs"`
	}
	if err := askEtcd(ctx, plane, "range", map[string][]byte{"key": []byte(key)}, &found); err != nil {
		return nil, err
	}
	if len(found.Values) != 1 {
		return nil, fmt.Errorf("etcd has %d values of %s", len(found.Values), key)
	}
	return found.Values[0].Value, nil
}

// askEtcd sends a request to etcd's own gateway for JSON.
func askEtcd(ctx context.Context, plane *embedded.ControlPlane, method string, asked, result any) error {
	body, err := json.Marshal(asked)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, fmt.Sprintf("http://127.0.0.1:%d/v3/kv/%s", plane.EtcdPort, method), bytes.NewReader(body))
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 500)) // what can be had of the reason
		return fmt.Errorf("etcd's %s: %s: %s", method, answer.Status, text)
	}
	return json.NewDecoder(answer.Body).Decode(result)
}

package main

import (
	"context"
	"fmt"

	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/test/bench/report"
	"bosh-kubernetes-cpi/test/harness/embedded"
)

// objectSizes returns how many bytes each object of the VM template occupies in etcd.
func objectSizes(ctx context.Context, plane *embedded.ControlPlane, namespace string, template vmTemplate) ([]report.Object, error) {
	objects := []report.Object{
		{Name: "VM Pod"},
		{Name: "Secret with the agent settings"},
		{Name: "attachment Pod"},
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

// getFromEtcd returns the value stored under the key.
func getFromEtcd(ctx context.Context, plane *embedded.ControlPlane, key string) ([]byte, error) {
	var result struct {
		Values []struct {
			Value []byte `json:"value"`
		} `json:"kvs"`
	}
	if err := plane.CallEtcd(ctx, "kv/range", map[string][]byte{"key": []byte(key)}, &result); err != nil {
		return nil, err
	}
	if len(result.Values) != 1 {
		return nil, fmt.Errorf("get key %s from etcd: got %d values instead of 1", key, len(result.Values))
	}
	return result.Values[0].Value, nil
}

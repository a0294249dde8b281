package embedded

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// csiDriver is one of the cluster's drivers, with what serves it: one has the volumes of the nodes on this machine, the
// other, which is the same program, those of the node that is a computer.
type csiDriver struct {
	name         string
	classSuffix  string // what the names of its classes end in
	controlPlane *ControlPlane
	dir          string  // of its socket and its processes' files
	controller   Process // has the socket
}

func (d csiDriver) socket() string { return filepath.Join(d.dir, "csi.sock") }

// processes are those that the cluster has once for the driver: its controller and the sidecars.
func (d csiDriver) processes() []Process {
	// Waits between attempts are short: tests are to see the next attempt, not to wait for it.
	sidecar := func(name string, args ...string) Process {
		return csiProcess(d.controlPlane, d.dir, name,
			append([]string{"--csi-address", d.socket(), "--retry-interval-start=500ms", "--retry-interval-max=5s", "--timeout=60s"}, args...)...)
	}
	return []Process{
		d.controller,
		sidecar("csi-provisioner", "--strict-topology", "--default-fstype=ext4", "--extra-create-metadata"),
		sidecar("csi-attacher"),
		sidecar("csi-resizer"),
		sidecar("csi-snapshotter"),
	}
}

func csiProcess(plane *ControlPlane, dir, name string, args ...string) Process {
	kubeconfig := plane.Kubeconfig("csi")
	// csi-provisioner heeds $KUBECONFIG more than its flag.
	return Process{Name: name, Dir: dir, Args: append([]string{name, "--kubeconfig", kubeconfig, "--v=2"}, args...), Env: []string{"KUBECONFIG=" + kubeconfig}}
}

// start applies the driver's classes, and starts what does not run. Sidecars end when the driver's controller does, each in
// its own time, and a cluster's Pods would be restarted then; so all start anew with the controller.
func (d csiDriver) start(ctx context.Context) error {
	if err := d.controlPlane.Apply(ctx, fmt.Sprintf(csiManifests, d.name, CSISnapshotClass+d.classSuffix)+
		d.storageClass(CSIClass, "", true)+
		d.storageClass(CSIXFSClass, "csi.storage.k8s.io/fstype: xfs", true)+
		d.storageClass(CSIFixedClass, "", false)+
		d.storageClass(CSIMovableClass, CSITopologyParameter+": any-node", true)); err != nil {
		return err
	}
	if !d.controller.Running() {
		if err := d.stop(); err != nil {
			return err
		}
	}
	for _, process := range d.processes() {
		if err := process.Start(); err != nil {
			return err
		}
	}
	return nil
}

// stop stops the sidecars and the controller, in reverse order. The nodes' drivers end with their nodes.
func (d csiDriver) stop() error { return stopAll(d.processes()) }

// storageClass is a StorageClass of the driver.
func (d csiDriver) storageClass(name, parameters string, expand bool) string {
	return fmt.Sprintf(`---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: %s}
provisioner: %s
parameters: {%s}
volumeBindingMode: WaitForFirstConsumer
allowVolumeExpansion: %t
reclaimPolicy: Delete
`, name+d.classSuffix, d.name, parameters, expand)
}

// waitCSIDriver waits for the node's kubelet to know the CSI driver.
func (c *ControlPlane) waitCSIDriver(ctx context.Context, node, driver string) error {
	return WaitUntil(ctx, 2*time.Minute, node+" to know the CSI driver", func(ctx context.Context) (bool, error) {
		out, err := c.Kubectl(ctx, "get", "csinode", node, "-o", "jsonpath={.spec.drivers[*].name}")
		return slices.Contains(strings.Fields(out), driver), err
	})
}

const csiManifests = `
apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: %[1]s}
spec: {attachRequired: true, podInfoOnMount: false, fsGroupPolicy: ReadWriteOnceWithFSType, volumeLifecycleModes: [Persistent]}
---
apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshotClass
metadata:
  name: %[2]s
  annotations: {snapshot.storage.kubernetes.io/is-default-class: "true"}
driver: %[1]s
deletionPolicy: Delete
`

package embedded

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// csiDriver is a CSI driver with its controller and sidecars. There are two drivers, which run the same program: one for the nodes
// that share the host's kernel, and one for the VM node.
type csiDriver struct {
	name         string
	classSuffix  string // suffix of the names of its StorageClasses and VolumeSnapshotClass
	controlPlane *ControlPlane
	dir          string  // directory of the socket and of the processes' files
	controller   Process // serves the socket
}

func (d csiDriver) socket() string { return filepath.Join(d.dir, "csi.sock") }

// processes returns the driver's controller and sidecars.
func (d csiDriver) processes() []Process {
	// Short retry intervals, because tests wait for retries.
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
	// csi-provisioner prefers $KUBECONFIG to its flag.
	return Process{Name: name, Dir: dir, Args: append([]string{name, "--kubeconfig", kubeconfig, "--v=2"}, args...), Env: []string{"KUBECONFIG=" + kubeconfig}}
}

// start applies the StorageClasses and the VolumeSnapshotClass of the driver, and starts all processes that are not running. If the
// controller exited, it also restarts the sidecars. They exit some time after the controller, and, unlike in a Pod, nothing restarts
// them.
func (d csiDriver) start(ctx context.Context) error {
	if err := d.controlPlane.Apply(ctx, fmt.Sprintf(csiManifests, d.name, CSISnapshotClass+d.classSuffix)+
		d.storageClass(CSIClass, "", true)+
		d.storageClass(CSIXFSClass, "csi.storage.k8s.io/fstype: xfs", true)+
		d.storageClass(CSIFixedClass, "", false)+
		d.storageClass(CSIAnyNodeClass, CSIAccessibilityParameter+": any-node", true)); err != nil {
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

// stop stops the sidecars, then the controller. The drivers on nodes are stopped with their nodes.
func (d csiDriver) stop() error { return stopAll(d.processes()) }

// storageClass returns the manifest of a StorageClass of the driver.
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

// waitCSIDriver waits until the node's kubelet registers the CSI driver.
func (c *ControlPlane) waitCSIDriver(ctx context.Context, node, driver string) error {
	return WaitUntil(ctx, 2*time.Minute, node+" to register the CSI driver", func(ctx context.Context) (bool, error) {
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

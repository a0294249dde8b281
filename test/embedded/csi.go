package embedded

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// What the cluster knows the CSI driver by. The driver (test/csi) is a module of its own, which keeps the
// libraries of CSI out of the product's: it is known here as a program, and its words are said again.
const (
	CSIDriverName     = "embedded.csi"
	CSITopologyKey    = "topology." + CSIDriverName + "/node" // the label that says on which node a volume is
	CSIReachParameter = "reach"                               // the StorageClass's parameter that says from where its volumes can be used
)

// Storage classes of the cluster beside the default one, and the class of volume snapshots. Their volumes
// can be of either volume mode, and are on one node each but for those that can move.
const (
	CSIMovableClass  = "csi-movable" // usable on one node at a time, and on any
	CSIClass         = "csi"         // can be expanded; with ext4 in Filesystem mode
	CSIXFSClass      = "csi-xfs"     // can be expanded; with xfs, which grows while it is mounted on any machine
	CSIFixedClass    = "csi-fixed"   // cannot
	CSISnapshotClass = "csi"
)

// CSIDriver serves this node's volumes, in the node's namespaces, so that what it mounts is seen by the
// kubelet.
func (n *Node) CSIDriver() Process {
	return n.inside("csi-driver", "embedded-csi-driver", "-dir", n.CSI, "-node", n.Name,
		"-socket", filepath.Join(n.KubeletRoot(), "plugins", CSIDriverName, "csi.sock"), "-kubelet", n.KubeletRoot())
}

// csiImages are the files behind the CSI volumes that the node has.
func (n *Node) csiImages(ctx context.Context) ([]string, error) {
	list, err := Run(ctx, "embedded-csi-driver", "-images", "-dir", n.CSI, "-node", n.Name)
	return strings.Fields(list), err
}

// csiProcesses are those that the cluster has once: the driver's controller and the sidecars.
func (c *Cluster) csiProcesses() []Process {
	dir := filepath.Join(c.Dir, "csi")
	socket := filepath.Join(dir, "csi.sock")
	kubeconfig := c.ControlPlane.Kubeconfig("csi")
	process := func(name string, args ...string) Process {
		// csi-provisioner heeds $KUBECONFIG more than its flag.
		return Process{Name: name, Dir: dir, Args: append([]string{name, "--kubeconfig", kubeconfig, "--v=2"}, args...), Env: []string{"KUBECONFIG=" + kubeconfig}}
	}
	// Waits between attempts are short: tests are to see the next attempt, not to wait for it.
	sidecar := func(name string, args ...string) Process {
		return process(name, append([]string{"--csi-address", socket, "--retry-interval-start=500ms", "--retry-interval-max=5s", "--timeout=60s"}, args...)...)
	}
	return []Process{
		{Name: "csi-controller", Dir: dir, Args: []string{"embedded-csi-driver", "-controller", "-dir", dir, "-socket", socket}},
		sidecar("csi-provisioner", "--strict-topology", "--default-fstype=ext4", "--extra-create-metadata"),
		sidecar("csi-attacher"),
		sidecar("csi-resizer"),
		sidecar("csi-snapshotter"),
		process("snapshot-controller", "--retry-interval-start=500ms", "--retry-interval-max=5s"),
	}
}

// startCSI starts what does not run and waits until the kubelets know the driver.
func (c *Cluster) startCSI(ctx context.Context) error {
	crds := os.Getenv("SNAPSHOT_CRDS")
	if crds == "" {
		return fmt.Errorf("SNAPSHOT_CRDS does not name the folder with the snapshots' custom resource definitions")
	}
	// Those of group snapshots too: the controller would wait for them half a minute. The folder holds a
	// kustomization that kubectl cannot apply.
	files, err := filepath.Glob(filepath.Join(crds, "*.storage.k8s.io_*.yaml"))
	if err != nil {
		return err
	}
	apply := []string{"apply", "--server-side"}
	for _, file := range files {
		apply = append(apply, "-f", file)
	}
	if _, err := c.ControlPlane.Kubectl(ctx, apply...); err != nil {
		return err
	}
	if _, err := c.ControlPlane.Kubectl(ctx, "wait", "--for=condition=Established", "--timeout=60s", "crd", "--all"); err != nil {
		return err
	}
	if err := c.ControlPlane.Apply(ctx, fmt.Sprintf(csiResources, CSIDriverName, CSISnapshotClass)+
		csiClass(CSIClass, "", true)+
		csiClass(CSIXFSClass, "csi.storage.k8s.io/fstype: xfs", true)+
		csiClass(CSIFixedClass, "", false)+
		csiClass(CSIMovableClass, CSIReachParameter+": any-node", true)); err != nil {
		return err
	}
	if err := c.startSidecars(); err != nil {
		return err
	}
	for _, node := range c.Nodes {
		if err := node.awaitCSI(ctx); err != nil {
			return err
		}
	}
	for _, process := range c.csiProcesses() {
		if !process.Running() {
			return fmt.Errorf("%s ended; the end of its log:\n%s", process.Name, process.LastLines())
		}
	}
	return nil
}

// startSidecars starts what does not run. Sidecars end when the driver's controller does, each in its own
// time, and a cluster's Pods would be restarted then; so all start anew with the controller.
func (c *Cluster) startSidecars() error {
	processes := c.csiProcesses()
	if !processes[0].Running() {
		if err := c.stopCSI(); err != nil {
			return err
		}
	}
	for _, process := range processes {
		if err := process.Start(); err != nil {
			return err
		}
	}
	return nil
}

// awaitCSI starts the node's driver, if its node does not have one yet, and waits for the kubelet to
// register it.
func (n *Node) awaitCSI(ctx context.Context) error {
	if err := n.CSIDriver().Start(); err != nil {
		return err
	}
	err := Eventually(ctx, time.Minute, n.Name+" to know the CSI driver", func(ctx context.Context) (bool, error) {
		out, err := n.ControlPlane.Kubectl(ctx, "get", "csinode", n.Name, "-o", "jsonpath={.spec.drivers[*].name}")
		return strings.Contains(out, CSIDriverName), err
	})
	if err != nil {
		return fmt.Errorf("%w; the end of the driver's log:\n%s", err, n.CSIDriver().LastLines())
	}
	return nil
}

// stopCSI stops the sidecars and the controller, in reverse order. The nodes' drivers end with their nodes.
func (c *Cluster) stopCSI() error { return stopAll(c.csiProcesses()) }

const csiResources = `
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

// csiClass is a StorageClass of the driver.
func csiClass(name, parameters string, expand bool) string {
	return fmt.Sprintf(`---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: %s}
provisioner: %s
parameters: {%s}
volumeBindingMode: WaitForFirstConsumer
allowVolumeExpansion: %t
reclaimPolicy: Delete
`, name, CSIDriverName, parameters, expand)
}

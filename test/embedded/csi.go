package embedded

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// What the cluster knows its CSI drivers by. The driver (test/csi) is a module of its own, which keeps the
// libraries of CSI out of the product's: it is known here as a program, and its words are said again.
const (
	CSIDriverName        = "embedded.csi"
	CSITopologyKey       = "topology." + CSIDriverName + "/node" // the label that says on which node a volume is
	CSITopologyParameter = "reach"                               // the StorageClass's parameter that says from where its volumes can be used
	VMCSIDriverName      = "vm." + CSIDriverName                 // of the driver whose volumes are on the node that is a computer
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

// VMClassSuffix is what the names of these classes end in where their volumes are on the node that is a computer.
const VMClassSuffix = "-vm"

// CSIDriver serves this node's volumes, in the node's namespaces, so that what it mounts is seen by the
// kubelet.
func (n *Node) CSIDriver() Process {
	return n.inNamespaces("csi-driver", "embedded-csi-driver", "-dir", n.CSI, "-node", n.Name,
		"-socket", filepath.Join(n.KubeletRoot(), "plugins", CSIDriverName, "csi.sock"), "-kubelet", n.KubeletRoot())
}

// csiVolumeFiles are the files behind the CSI volumes that the node has.
func (n *Node) csiVolumeFiles(ctx context.Context) ([]string, error) {
	list, err := Run(ctx, "embedded-csi-driver", "-images", "-dir", n.CSI, "-node", n.Name)
	return strings.Fields(list), err
}

// csi is the driver of the nodes on this machine.
func (c *Cluster) csi() csiDriver {
	d := csiDriver{name: CSIDriverName, controlPlane: c.ControlPlane, dir: filepath.Join(c.Dir, "csi")}
	d.controller = Process{Name: "csi-controller", Dir: d.dir, Args: []string{"embedded-csi-driver", "-controller", "-dir", d.dir, "-socket", d.socket()}}
	return d
}

// snapshotController is the process that makes snapshots known, of whichever driver.
func (c *Cluster) snapshotController() Process {
	return csiProcess(c.ControlPlane, c.csi().dir, "snapshot-controller", "--retry-interval-start=500ms", "--retry-interval-max=5s")
}

// csiProcesses are those that the cluster has once, for its own driver and for snapshots of any.
func (c *Cluster) csiProcesses() []Process {
	return append(c.csi().processes(), c.snapshotController())
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
	if err := c.csi().start(ctx); err != nil {
		return err
	}
	if err := c.snapshotController().Start(); err != nil {
		return err
	}
	for _, node := range c.Nodes {
		if err := node.waitCSI(ctx); err != nil {
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

// waitCSI starts the node's driver, if its node does not have one yet, and waits for the kubelet to
// register it.
func (n *Node) waitCSI(ctx context.Context) error {
	if err := n.CSIDriver().Start(); err != nil {
		return err
	}
	if err := n.ControlPlane.waitCSIDriver(ctx, n.Name, CSIDriverName); err != nil {
		return fmt.Errorf("%w; the end of the driver's log:\n%s", err, n.CSIDriver().LastLines())
	}
	return nil
}

// stopCSI stops the sidecars and the controller, in reverse order. The nodes' drivers end with their nodes.
func (c *Cluster) stopCSI() error { return stopAll(c.csiProcesses()) }

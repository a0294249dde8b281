package embedded

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Names of the CSI drivers. The driver is a separate module (test/harness/csi), to keep CSI libraries out of the product's dependencies.
// This package only runs its program, and therefore duplicates the constants.
const (
	CSIDriverName             = "embedded.csi"
	CSITopologyKey            = "topology." + CSIDriverName + "/node" // label with the node of a volume
	CSIAccessibilityParameter = "accessibility"                       // StorageClass parameter: which nodes can use the volumes
	VMCSIDriverName           = "vm." + CSIDriverName                 // the driver of the VM node
)

// StorageClasses of the cluster in addition to the default one, and the VolumeSnapshotClass. Volumes support both volume modes.
// They are bound to a node, except those of CSIAnyNodeClass.
const (
	CSIAnyNodeClass  = "csi-any-node" // on any node, one at a time
	CSIClass         = "csi"          // with volume expansion; ext4 in Filesystem mode
	CSIXFSClass      = "csi-xfs"      // with volume expansion; xfs, because every kernel can grow it while it is mounted
	CSIFixedClass    = "csi-fixed"    // without volume expansion
	CSISnapshotClass = "csi"
)

// VolumeAttributesClasses of CSIDriverName. Kubernetes serves this kind from version 1.34 on.
const (
	CSIFastAttributes       = "csi-fast"
	CSIInfeasibleAttributes = "csi-infeasible" // the driver rejects it
	CSIAttributesClasses    = `
apiVersion: storage.k8s.io/v1
kind: VolumeAttributesClass
metadata: {name: ` + CSIFastAttributes + `}
driverName: ` + CSIDriverName + `
parameters: {iops: "9000"}
---
apiVersion: storage.k8s.io/v1
kind: VolumeAttributesClass
metadata: {name: ` + CSIInfeasibleAttributes + `}
driverName: ` + CSIDriverName + `
parameters: {iops: "0"}
`
)

// VMClassSuffix is the suffix of the names of these classes on the VM node.
const VMClassSuffix = "-vm"

// CSIDriver returns the driver for this node's volumes. It runs in the node's namespaces because the kubelet must see its mounts.
func (n *Node) CSIDriver() Process {
	return n.inNamespaces("csi-driver", "embedded-csi-driver", "-dir", n.CSI, "-node", n.Name,
		"-socket", filepath.Join(n.KubeletRoot(), "plugins", CSIDriverName, "csi.sock"), "-kubelet", n.KubeletRoot())
}

// csiVolumeFiles returns the files of the CSI volumes that the node uses.
func (n *Node) csiVolumeFiles(ctx context.Context) ([]string, error) {
	list, err := Run(ctx, "embedded-csi-driver", "-images", "-dir", n.CSI, "-node", n.Name)
	return strings.Fields(list), err
}

// csi returns the driver of the nodes that share the host's kernel.
func (c *Cluster) csi() csiDriver {
	d := csiDriver{name: CSIDriverName, controlPlane: c.ControlPlane, dir: filepath.Join(c.Dir, "csi")}
	d.controller = Process{Name: "csi-controller", Dir: d.dir, Args: []string{"embedded-csi-driver", "-controller", "-dir", d.dir, "-socket", d.socket()}}
	return d
}

// snapshotController returns the snapshot controller, which serves all drivers.
func (c *Cluster) snapshotController() Process {
	return csiProcess(c.ControlPlane, c.csi().dir, "snapshot-controller", "--retry-interval-start=500ms", "--retry-interval-max=5s")
}

// csiProcesses returns the driver's controller and sidecars, and the snapshot controller.
func (c *Cluster) csiProcesses() []Process {
	return append(c.csi().processes(), c.snapshotController())
}

// startCSI starts all processes that are not running, and waits until the kubelets register the driver.
func (c *Cluster) startCSI(ctx context.Context) error {
	crds := os.Getenv("SNAPSHOT_CRDS")
	if crds == "" {
		return fmt.Errorf("SNAPSHOT_CRDS is not set to the directory with the custom resource definitions of snapshots")
	}
	// The glob includes group snapshots, because the controller would wait half a minute for their definitions. It excludes a
	// kustomization in the directory, because kubectl cannot apply it.
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
			return fmt.Errorf("%s exited; last lines of its log:\n%s", process.Name, process.LastLines())
		}
	}
	return nil
}

// waitCSI starts the node's driver unless it is running, and waits until the kubelet registers it.
func (n *Node) waitCSI(ctx context.Context) error {
	if err := n.CSIDriver().Start(); err != nil {
		return err
	}
	if err := n.ControlPlane.waitCSIDriver(ctx, n.Name, CSIDriverName); err != nil {
		return fmt.Errorf("%w; last lines of the driver's log:\n%s", err, n.CSIDriver().LastLines())
	}
	return nil
}

// stopCSI stops the snapshot controller, the sidecars and the driver's controller. The drivers on nodes are stopped with their nodes.
func (c *Cluster) stopCSI() error { return stopAll(c.csiProcesses()) }

package embedded

import (
	"context"
	"fmt"
)

// The VM node has a separate CSI driver, because only the node has access to its disks. One process on the VM node serves both the
// node service and the controller. The sidecars on the host connect to it through SSH.

// vmCSIDir is the directory of the driver's volumes on the VM node.
const vmCSIDir = "/var/lib/embedded/csi"

// vmCSISocket is the driver's socket on the VM node.
const vmCSISocket = vmKubeletRoot + "/plugins/" + VMCSIDriverName + "/csi.sock"

func (n *VMNode) csiDriver() csiDriver {
	d := csiDriver{name: VMCSIDriverName, classSuffix: VMClassSuffix, controlPlane: n.ControlPlane, dir: n.file("csi")}
	d.controller = Process{Name: "csi-controller", Dir: d.dir, Args: append([]string{"ssh"}, n.sshArgs("-N", "-L", d.socket()+":"+vmCSISocket,
		"-o", "StreamLocalBindUnlink=yes", "-o", "ExitOnForwardFailure=yes")...)}
	return d
}

// startCSI waits until the kubelet has registered the driver, which systemd starts. It then restarts the SSH connection and the sidecars,
// because a reboot of the node breaks the connection.
func (n *VMNode) startCSI(ctx context.Context) error {
	if err := n.ControlPlane.waitCSIDriver(ctx, VMNodeName, VMCSIDriverName); err != nil {
		return err
	}
	if err := n.csiDriver().stop(); err != nil {
		return err
	}
	return n.csiDriver().start(ctx)
}

// vmCSIUnit is the driver's systemd unit.
var vmCSIUnit = fmt.Sprintf(`[Service]
ExecStart=/opt/embedded/bin/embedded-csi-driver -name %s -controller -node %s -dir %s -socket %s -kubelet %s
Restart=always
`, VMCSIDriverName, VMNodeName, vmCSIDir, vmCSISocket, vmKubeletRoot)

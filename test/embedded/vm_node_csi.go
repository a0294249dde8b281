package embedded

import (
	"context"
	"fmt"
)

// The computer has a CSI driver of its own, since nobody else sees its disks: node and controller are one process there,
// and the sidecars on this machine reach it by SSH.

// vmCSIDir is the folder of its volumes, on the computer.
const vmCSIDir = "/var/lib/embedded/csi"

// vmCSISocket is where the driver answers, on the computer.
const vmCSISocket = vmKubeletRoot + "/plugins/" + VMCSIDriverName + "/csi.sock"

func (n *VMNode) csi() csiDriver {
	d := csiDriver{name: VMCSIDriverName, classSuffix: VMClassSuffix, controlPlane: n.ControlPlane, dir: n.file("csi")}
	d.controller = Process{Name: "csi-controller", Dir: d.dir, Args: append([]string{"ssh"}, n.sshArgs("-N", "-L", d.socket()+":"+vmCSISocket,
		"-o", "StreamLocalBindUnlink=yes", "-o", "ExitOnForwardFailure=yes")...)}
	return d
}

// startCSI waits for the kubelet to know the driver, which the computer has started, and starts what serves it, anew: after
// a reboot there may be a connection of before.
func (n *VMNode) startCSI(ctx context.Context) error {
	if err := n.ControlPlane.waitCSIDriver(ctx, VMNodeName, VMCSIDriverName); err != nil {
		return err
	}
	if err := n.csi().stop(); err != nil {
		return err
	}
	return n.csi().start(ctx)
}

// vmCSIUnit is the driver's unit.
var vmCSIUnit = fmt.Sprintf(`[Service]
ExecStart=/opt/embedded/bin/embedded-csi-driver -name %s -controller -node %s -dir %s -socket %s -kubelet %s
Restart=always
`, VMCSIDriverName, VMNodeName, vmCSIDir, vmCSISocket, vmKubeletRoot)

package embedded

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// A VM node has three disks. The first is a copy of the image's root filesystem. The second contains the programs and the
// configuration of this cluster; embedded.service mounts it at /opt/embedded. The third contains container images; see
// vm_node_image_store.go.

// vmPrograms are the programs on the VM node that are not part of Debian. runc is.
var vmPrograms = []string{
	"containerd", "containerd-shim-runc-v2", "ctr", "kubelet", "embedded", "embedded-csi-driver",
	"bridge", "loopback", "host-local", "static", "portmap", "calico", "calico-ipam",
}

// createDisks creates the disks unless they exist.
func (n *VMNode) createDisks(ctx context.Context) error {
	if _, err := os.Stat(n.file("root.img")); err == nil {
		return nil
	}
	if err := os.RemoveAll(n.Dir); err != nil { // incomplete files
		return err
	}
	programs := n.file("programs")
	for _, subdirectory := range []string{"bin", "cni", "images", "units"} {
		if err := os.MkdirAll(filepath.Join(programs, subdirectory), 0o755); err != nil {
			return err
		}
	}
	if _, err := Run(ctx, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", n.file("key")); err != nil {
		return err
	}
	for _, write := range []func(string) error{n.copyPrograms, n.copyCredentials, n.configure, n.writeImages} {
		if err := write(programs); err != nil {
			return err
		}
	}
	if err := os.WriteFile(n.file("image"), []byte(n.Image), 0o600); err != nil {
		return err
	}
	if err := n.createImageStore(ctx, filepath.Join(programs, "images")); err != nil {
		return err
	}
	for _, command := range [][]string{
		{"mke2fs", "-q", "-t", "ext4", "-d", programs, n.file("programs.img"), "1G"},
		{"cp", "--sparse=always", filepath.Join(n.Image, "root.img"), n.file("root.img.new")},
		{"mv", n.file("root.img.new"), n.file("root.img")},
		{"rm", "-r", programs},
	} {
		if _, err := Run(ctx, command[0], command[1:]...); err != nil {
			return err
		}
	}
	return nil
}

func (n *VMNode) copyPrograms(dir string) error {
	for _, name := range vmPrograms {
		path, err := exec.LookPath(name)
		if err != nil {
			return err
		}
		if err := copyFile(path, filepath.Join(dir, "bin", name), 0o755); err != nil {
			return err
		}
	}
	return nil
}

func (n *VMNode) copyCredentials(dir string) error {
	for name, source := range map[string]string{
		"kubelet.kubeconfig": n.ControlPlane.Kubeconfig("system:node:" + VMNodeName),
		"cni.kubeconfig":     n.ControlPlane.Kubeconfig("cni"),
		"ca.crt":             n.ControlPlane.pkiFile("ca.crt"),
		"authorized_keys":    n.file("key.pub"),
	} {
		if err := copyFile(source, filepath.Join(dir, name), 0o600); err != nil {
			return err
		}
	}
	return nil
}

func copyFile(from, to string, mode os.FileMode) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	if _, err := io.Copy(target, source); err != nil {
		_ = target.Close()
		return err
	}
	return target.Close()
}

// writeImages writes the archives of the images that every node has.
func (n *VMNode) writeImages(dir string) error {
	for tag, files := range map[string]func() (map[string]string, error){PauseImage: pauseFiles, BusyboxImage: busyboxFiles} {
		content, err := files()
		if err != nil {
			return err
		}
		name := strings.NewReplacer("/", "-", ":", "-").Replace(tag) + ".tar"
		if err := writeImage(filepath.Join(dir, "images", name), tag, content); err != nil {
			return err
		}
	}
	return nil
}

func (n *VMNode) configure(dir string) error {
	const root = "/opt/embedded"
	forward := root + "/bin/embedded forward"
	ports := fmt.Sprintf("127.0.0.1:%d=%s:%[1]d 127.0.0.1:%[3]d=%[2]s:%[3]d", apiPort, n.HostAddress(), registryPort)
	for name, content := range map[string]string{
		"start": fmt.Sprintf(vmStartScript, VMNodeName, n.Address, n.HostAddress()),
		"containerd.toml": fmt.Sprintf(containerdConfig, "/var/lib/embedded", "/run/containerd/containerd.sock", root+"/bin", "/usr/sbin/runc",
			PauseImage, root+"/cni", true, ""),
		"kubelet.yaml": fmt.Sprintf(kubeletConfig, "/run/containerd/containerd.sock", n.Port, n.Port+1, root+"/ca.crt", n.Address,
			root+"/resolv.conf", "/var/log/pods", ClusterDNS, "cgroupDriver: systemd"),
		"resolv.conf":              "nameserver " + ClusterDNS + "\n",
		"cni/10-calico.conflist":   fmt.Sprintf(calicoConfig, VMNodeName, root+"/cni.kubeconfig", "/var/log/calico.log"),
		"units/forward.service":    "[Service]\nExecStart=" + forward + " " + ports + "\nRestart=always\n",
		"units/containerd.service": vmContainerdUnit,
		"units/csi-driver.service": vmCSIUnit,
		"units/kubelet.service":    fmt.Sprintf(vmKubeletUnit, VMNodeName, n.Address, VMTaint, n.asNode().zone()),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// vmStartScript runs at each boot.
const vmStartScript = `#!/bin/bash
set -euo pipefail
hostname %[1]s
ip link set vec0 down
ip link set vec0 name eth0
ip link set eth0 up
ip address replace %[2]s/30 dev eth0
ip route replace default via %[3]s
modprobe --all overlay loop br_netfilter
sysctl -qw net.ipv4.ip_forward=1
install -D -m 0600 /opt/embedded/authorized_keys /root/.ssh/authorized_keys
mkdir -p /run/systemd/system /var/lib/embedded /var/log/pods
mount /dev/ubdc /var/lib/embedded
# The kubelet reads the CPU's speed, but this kernel does not report it.
sed 's/^vendor_id/cpu MHz\t\t: 1000.000\nvendor_id/' /proc/cpuinfo >/run/cpuinfo
mount --bind /run/cpuinfo /proc/cpuinfo
cp /opt/embedded/units/* /run/systemd/system/
systemctl daemon-reload
systemctl start --no-block kubelet.service
`

const vmContainerdUnit = `[Unit]
After=network.target
[Service]
ExecStart=/opt/embedded/bin/containerd --config /opt/embedded/containerd.toml --log-level warn
Environment=PATH=/opt/embedded/bin:/usr/sbin:/usr/bin:/sbin:/bin
Type=notify
Delegate=yes
KillMode=process
Restart=always
LimitNOFILE=1048576
TasksMax=infinity
OOMScoreAdjust=-999
TimeoutStartSec=infinity
`

const vmKubeletUnit = `[Unit]
Wants=containerd.service forward.service csi-driver.service
After=containerd.service forward.service
[Service]
ExecStart=/opt/embedded/bin/kubelet --config /opt/embedded/kubelet.yaml --kubeconfig /opt/embedded/kubelet.kubeconfig \
  --hostname-override %[1]s --node-ip %[2]s --cert-dir /var/lib/embedded/pki --register-with-taints %[3]s=:NoSchedule \
  --node-labels topology.kubernetes.io/zone=%[4]s,topology.kubernetes.io/region=embedded --v=1
Restart=always
KillMode=process
TimeoutStartSec=infinity
`

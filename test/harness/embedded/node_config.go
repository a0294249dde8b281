package embedded

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// configure writes the configuration of containerd, kubelet and the CNI.
func (n *Node) configure() error {
	if err := os.MkdirAll(n.file("cni"), 0o755); err != nil {
		return err
	}
	runc, err := exec.LookPath("runc")
	if err != nil {
		return fmt.Errorf("runc not found; run apt-get install runc (%w)", err)
	}
	plugins, err := n.plugins()
	if err != nil {
		return err
	}
	for name, content := range map[string]string{
		"containerd.toml": fmt.Sprintf(containerdConfig, n.Dir, n.socket(), plugins, runc, PauseImage,
			n.file("cni"), false, "  restrict_oom_score_adj = true\n  disable_apparmor = true"),
		"kubelet.yaml": fmt.Sprintf(kubeletConfig, n.socket(), n.Port, n.Port+1, n.ControlPlane.pkiFile("ca.crt"), n.Address, n.file("resolv.conf"),
			n.file("logs"), ClusterDNS, cgroupsWithoutSystemd),
		"kube-proxy.yaml":        fmt.Sprintf(kubeProxyConfig, n.ControlPlane.Kubeconfig("system:kube-proxy"), BOSHNetworkPrefix+".0.0/16", n.Port+2, n.Port+3),
		"resolv.conf":            "nameserver " + ClusterDNS + "\n",
		"cni/10-calico.conflist": fmt.Sprintf(calicoConfig, n.Name, n.ControlPlane.Kubeconfig("cni"), n.file("calico.log")),
	} {
		if err := os.WriteFile(n.file(name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// plugins returns a directory with links to all CNI plugins. containerd supports several directories, but Calico's IPAM does not.
func (n *Node) plugins() (string, error) {
	dir := n.file("plugins")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	for _, name := range []string{"bridge", "loopback", "host-local", "static", "portmap", "calico", "calico-ipam"} {
		path, err := exec.LookPath(name)
		if err != nil {
			return "", fmt.Errorf("CNI plugin %s: %w", name, err)
		}
		link := filepath.Join(dir, name)
		_ = os.Remove(link)
		if err := os.Symlink(path, link); err != nil {
			return "", err
		}
	}
	return dir, nil
}

const containerdConfig = `version = 3
root = "%[1]s/containerd"
state = "%[1]s/containerd-state"
[grpc]
  address = "%[2]s"
[plugins.'io.containerd.cri.v1.runtime']
%[8]s
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ["%[3]s"]
    conf_dir = "%[6]s"
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
      BinaryName = "%[4]s"
      SystemdCgroup = %[7]t
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runsc]
    runtime_type = "io.containerd.runsc.v1"
[plugins.'io.containerd.cri.v1.images'.registry]
  config_path = "%[1]s/registries"
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = "%[5]s"
`

// cgroupsWithoutSystemd is the configuration of a kubelet on hosts without systemd, or with cgroup v1.
const cgroupsWithoutSystemd = `failCgroupV1: false
cgroupDriver: cgroupfs
cgroupsPerQOS: false
enforceNodeAllocatable: []`

const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix://%[1]s
port: %[2]d
healthzPort: %[3]d
address: %[5]s
authentication:
  anonymous: {enabled: false}
  x509: {clientCAFile: %[4]s}
%[9]s
localStorageCapacityIsolation: false
failSwapOn: false
resolvConf: %[6]s
clusterDNS: [%[8]s]
clusterDomain: cluster.local
evictionHard: {memory.available: 100Mi}
imageGCHighThresholdPercent: 100
maxPods: 110
shutdownGracePeriod: 0s
syncFrequency: 10s
volumeStatsAggPeriod: 0s
crashLoopBackOff: {maxContainerRestartPeriod: 1s}
# Kubelets that share a directory remove each other's logs.
podLogsDir: %[7]s
`

// kubeProxyConfig leaves the limits of connection tracking as they are, because they apply to the whole host.
const kubeProxyConfig = `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
clientConnection: {kubeconfig: %[1]s}
clusterCIDR: %[2]s
healthzBindAddress: 127.0.0.1:%[3]d
metricsBindAddress: 127.0.0.1:%[4]d
conntrack: {maxPerCore: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
nftables: {minSyncPeriod: 0s}
`

const calicoConfig = `{
  "name": "k8s-pod-network",
  "cniVersion": "1.0.0",
  "plugins": [{
    "type": "calico",
    "datastore_type": "kubernetes",
    "nodename": "%[1]s",
    "nodename_file_optional": true,
    "mtu": 1450,
    "log_level": "warning",
    "log_file_path": "%[3]s",
    "ipam": {"type": "calico-ipam"},
    "policy": {"type": "k8s"},
    "kubernetes": {"kubeconfig": "%[2]s"}
  }]
}
`

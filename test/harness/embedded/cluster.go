package embedded

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Cluster is a Kubernetes cluster with its nodes, on fixed ports.
type Cluster struct {
	Dir          string
	ControlPlane *ControlPlane
	Nodes        []*Node
	// VM is an additional node. It is started only if it has an image.
	VM *VMNode
	// Small omits what the demo does not need: the cluster's DNS, and the CSI driver with its sidecars. Up without Small adds them to a
	// cluster that was started with it.
	Small bool
}

// NewCluster returns the cluster with its state in dir, without starting anything. The first node uses the host's network, the
// second a network namespace.
func NewCluster(dir string, nodes int) *Cluster {
	plane := &ControlPlane{Dir: filepath.Join(dir, "control-plane"), APIPort: apiPort, EtcdPort: etcdPort, EtcdPeerPort: etcdPeerPort}
	vm := &VMNode{Dir: filepath.Join(dir, VMNodeName), ControlPlane: plane, Address: nodeAddress(vmNodeNumber), Port: kubeletPort}
	cluster := &Cluster{Dir: dir, ControlPlane: plane, VM: vm}
	for i, name := range NodeNames[:nodes] {
		node := &Node{
			Name: name, Dir: filepath.Join(dir, name), ControlPlane: plane, Port: kubeletPort,
			Address: nodeAddress(i), Network: networkName(i), CSI: filepath.Join(dir, "csi"), Services: clusterNumber == 0,
		}
		cluster.Nodes = append(cluster.Nodes, node)
	}
	return cluster
}

func (c *Cluster) registry() Process {
	return Process{Name: "registry", Dir: c.Dir, Args: []string{"embedded", "registry",
		"-port", strconv.Itoa(registryPort), "-dir", filepath.Join(c.Dir, "registry")}}
}

// Process returns a process of the cluster that is not part of a node, by its name.
func (c *Cluster) Process(name string) (Process, error) {
	clusterWide := []Process{c.registry(), c.provisioner(), c.dnsProcess()}
	for _, process := range slices.Concat(c.ControlPlane.processes(), c.csiProcesses(), clusterWide) {
		if process.Name == name {
			return process, nil
		}
	}
	return Process{}, fmt.Errorf("the cluster has no process %q", name)
}

// Up starts all processes that are not running, and reports each step to progress.
func (c *Cluster) Up(ctx context.Context, progress func(string)) error {
	start := time.Now()
	steps := c.steps()
	for i, step := range steps {
		progress(fmt.Sprintf("%s (%d of %d, %.0f s so far)", step.name, i+1, len(steps), time.Since(start).Seconds()))
		if err := step.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return c.writeKubeconfig()
}

// step is a step of Up.
type step struct {
	name string
	run  func(context.Context) error
}

func (c *Cluster) steps() []step {
	steps := []step{
		{"etcd, API server, controller manager, scheduler", c.ControlPlane.Start},
		{"Calico's resources and address pools", c.installCalico},
		{"container registry", func(context.Context) error { return c.registry().Start() }},
		{"nodes: containerd, kubelet, kube-proxy", c.startNodes},
		{"Service of the API server", c.createAPIEndpoint},
		{"provisioner and default storage class", c.startProvisioner},
	}
	if !c.Small {
		steps = append(steps,
			step{"cluster DNS", c.startDNS},
			step{"CSI driver, its sidecars and classes", c.startCSI})
	}
	if c.VM.Image != "" {
		steps = append(steps, step{"VM node, which takes minutes to boot", c.VM.Start})
	}
	return steps
}

// ServeBridge runs the bridge process of the node with this name and address; see Node.ServeBridge.
func (c *Cluster) ServeBridge(ctx context.Context, name, address string) error {
	if name == VMNodeName {
		return c.VM.ServeBridge(ctx, apiPort, registryPort)
	}
	for _, node := range c.Nodes {
		if node.Name == name {
			node.Address = address
			return node.ServeBridge(ctx, apiPort, registryPort)
		}
	}
	return fmt.Errorf("node %s does not exist", name)
}

// Kubeconfig returns the path of the administrator's kubeconfig file.
func (c *Cluster) Kubeconfig() string { return filepath.Join(c.Dir, "kubeconfig") }

func (c *Cluster) writeKubeconfig() error {
	content, err := os.ReadFile(c.ControlPlane.Kubeconfig("admin"))
	if err != nil {
		return err
	}
	return os.WriteFile(c.Kubeconfig(), content, 0o600)
}

func (c *Cluster) startNodes(ctx context.Context) error {
	for _, node := range c.Nodes {
		if c.Small {
			node.CSI = ""
		}
		if err := node.Start(ctx); err != nil {
			return err
		}
	}
	return nil
}

// AddNode starts an additional node, and waits until it can use volumes.
func (c *Cluster) AddNode(ctx context.Context, node *Node) error {
	if err := node.Start(ctx); err != nil {
		return err
	}
	return node.waitCSI(ctx)
}

// RemoveNode kills the node, and removes it from the cluster and the host.
func (c *Cluster) RemoveNode(ctx context.Context, node *Node) error {
	if err := node.PowerOff(ctx); err != nil {
		return err
	}
	if _, err := c.ControlPlane.Kubectl(ctx, "delete", "node", node.Name); err != nil {
		return err
	}
	if err := node.leaveNetwork(ctx); err != nil {
		return err
	}
	return os.RemoveAll(node.Dir)
}

// Down deletes all Pods, so that their volumes are unmounted. It then stops all processes, and removes the cluster's directory.
func (c *Cluster) Down(ctx context.Context, progress func(string)) error {
	if c.ControlPlane.Process("kube-apiserver").Running() && c.Nodes[0].Kubelet().Running() {
		progress("deleting all Pods")
		if _, err := c.ControlPlane.Kubectl(ctx, "delete", "pods", "--all-namespaces", "--all", "--wait=false"); err != nil {
			progress("cannot delete some Pods: " + err.Error())
		}
		err := WaitUntil(ctx, 40*time.Second, "all Pods to be deleted", func(ctx context.Context) (bool, error) {
			remaining, err := c.ControlPlane.Kubectl(ctx, "get", "pods", "--all-namespaces", "--no-headers")
			return strings.TrimSpace(remaining) == "", err
		})
		if err != nil {
			progress("timed out deleting some Pods; killing their containers")
		}
	}
	progress("stopping all processes")
	if err := c.provisioner().Stop(); err != nil {
		return err
	}
	if err := c.stopCSI(); err != nil {
		return err
	}
	if err := c.dnsProcess().Stop(); err != nil {
		return err
	}
	if err := c.VM.Stop(ctx); err != nil {
		return err
	}
	for _, node := range c.Nodes {
		if err := node.Stop(ctx); err != nil {
			return err
		}
		if err := node.leaveNetwork(ctx); err != nil {
			return err
		}
	}
	if err := c.ControlPlane.Stop(); err != nil {
		return err
	}
	if err := c.registry().Stop(); err != nil {
		return err
	}
	progress("removing " + c.Dir)
	if err := os.RemoveAll(c.Dir); err != nil {
		return err
	}
	return c.detachLoops(ctx)
}

// detachLoops detaches the loop devices of files in the cluster's directory. A loop device created by an attachment Pod shows the
// path of the file in the Pod's container.
func (c *Cluster) detachLoops(ctx context.Context) error {
	list, err := Run(ctx, "losetup", "--list", "--noheadings", "--output", "NAME,BACK-FILE")
	if err != nil {
		return err
	}
	for line := range strings.Lines(list) {
		loop, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		file = strings.TrimSpace(file)
		if strings.HasPrefix(file, c.Dir+"/") || strings.HasPrefix(file, "/disk.img (deleted)") {
			if _, err := Run(ctx, "losetup", "--detach", loop); err != nil {
				return err
			}
		}
	}
	return nil
}

// installCalico applies the custom resources that Calico's plugin and IPAM use.
func (c *Cluster) installCalico(ctx context.Context) error {
	crds := os.Getenv("CALICO_CRDS")
	if crds == "" {
		return fmt.Errorf("CALICO_CRDS is not set to the directory with Calico's custom resource definitions")
	}
	// kubectl requires the schema, but a server that just started may not serve it yet.
	err := WaitUntil(ctx, time.Minute, "Calico's custom resource definitions", func(ctx context.Context) (bool, error) {
		_, err := c.ControlPlane.Kubectl(ctx, "apply", "--server-side", "-f", crds)
		return err == nil, err
	})
	if err != nil {
		return err
	}
	if _, err := c.ControlPlane.Kubectl(ctx, "wait", "--for=condition=Established", "--timeout=60s", "crd", "--all"); err != nil {
		return err
	}
	return c.ControlPlane.Apply(ctx, fmt.Sprintf(calicoManifests, podCIDR, boshCIDR))
}

const calicoManifests = `
apiVersion: crd.projectcalico.org/v1
kind: ClusterInformation
metadata: {name: default}
spec: {datastoreReady: true, clusterType: embedded}
---
apiVersion: crd.projectcalico.org/v1
kind: IPPool
metadata: {name: pods}
spec: {cidr: %[1]s, blockSize: 26, ipipMode: Never, vxlanMode: Never, natOutgoing: false, nodeSelector: all(), allowedUses: [Workload]}
---
apiVersion: crd.projectcalico.org/v1
kind: IPPool
metadata: {name: bosh}
spec: {cidr: %[2]s, blockSize: 26, ipipMode: Never, vxlanMode: Never, natOutgoing: false, nodeSelector: "!all()", allowedUses: [Workload]}
`

func (c *Cluster) provisioner() Process {
	return Process{Name: "local-path-provisioner", Dir: c.Dir, Args: []string{
		"local-path-provisioner", "start", "--kubeconfig", c.ControlPlane.Kubeconfig("provisioner"),
		"--config", filepath.Join(c.Dir, "local-path.json"), "--namespace", "kube-system",
		"--helper-image", BusyboxImage, "--helper-pod-file", filepath.Join(c.Dir, "local-path-helper.yaml"),
		"--provisioner-name", "rancher.io/local-path", "--service-account-name", "default", "--configmap-name", "local-path-config",
	}}
}

// startProvisioner starts the provisioner of the default StorageClass. Its volumes are directories on the node.
func (c *Cluster) startProvisioner(ctx context.Context) error {
	paths := []string{fmt.Sprintf(`{"node":%q,"paths":[%q]}`, VMNodeName, vmVolumes)}
	for _, node := range NewCluster(c.Dir, len(NodeNames)).Nodes {
		paths = append(paths, fmt.Sprintf(`{"node":%q,"paths":[%q]}`, node.Name, node.volumes()))
	}
	config := `{"nodePathMap":[` + strings.Join(paths, ",") + `]}`
	for name, content := range map[string]string{"local-path.json": config, "local-path-helper.yaml": provisionerHelperPod} {
		if err := os.WriteFile(filepath.Join(c.Dir, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	manifests := fmt.Sprintf(storageManifests, config, indent(provisionerHelperPod), indent(setupScript), indent(teardownScript))
	if err := c.ControlPlane.Apply(ctx, manifests); err != nil {
		return err
	}
	return c.provisioner().Start()
}

func indent(s string) string {
	return "    " + strings.ReplaceAll(strings.TrimSpace(s), "\n", "\n    ")
}

const (
	setupScript    = "#!/bin/sh\nset -eu\nmkdir -m 0777 -p \"$VOL_DIR\""
	teardownScript = "#!/bin/sh\nset -eu\nrm -rf \"$VOL_DIR\""

	provisionerHelperPod = `apiVersion: v1
kind: Pod
metadata: {name: helper-pod}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 0
  tolerations: [{operator: Exists}]
  containers:
  - {name: helper-pod, image: ` + BusyboxImage + `, imagePullPolicy: IfNotPresent}
`

	storageManifests = `
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: standard
  annotations: {storageclass.kubernetes.io/is-default-class: "true"}
provisioner: rancher.io/local-path
volumeBindingMode: WaitForFirstConsumer
reclaimPolicy: Delete
---
apiVersion: v1
kind: ConfigMap
metadata: {name: local-path-config, namespace: kube-system}
data:
  config.json: |
    %[1]s
  helperPod.yaml: |
%[2]s
  setup: |
%[3]s
  teardown: |
%[4]s
`
)

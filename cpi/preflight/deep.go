package preflight

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi"
	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/stemcell"
)

const (
	// deepTimeout limits all probes together.
	deepTimeout = 50 * time.Second
	// maxNodes is the maximum number of nodes that are probed.
	maxNodes = 5
	// ProbeDirector replaces the director's UUID in the labels of probe Pods, so that `cpi -collect -director preflight` finds orphaned
	// ones.
	ProbeDirector = "preflight"
)

// RunDeep runs a Pod like a VM Pod on up to maxNodes nodes, evaluates the reports of the Pods, and deletes them. image is the image
// of a stemcell, by default the image of an existing VM. nodeSelector are labels of the nodes, by default those of the admission limits,
// and nodes without taints.
func RunDeep(ctx context.Context, config cpi.Config, client *kube.Client, image string, nodeSelector map[string]string) []Result {
	ctx, cancel := context.WithTimeout(ctx, deepTimeout)
	defer cancel()
	s := newClusterState(config, client, image)
	s.nodeSelector = nodeSelector
	probes, failure := s.probeNodes(ctx)
	results := make([]Result, 0, len(DeepChecks()))
	for _, check := range DeepChecks() {
		found := failure
		if found.verdict == "" {
			found = check.evaluate(probes)
		}
		results = append(results, Check{Name: check.Name, Kind: check.Kind}.result(found))
	}
	return results
}

// nodeProbe is the result of a Pod on a node.
type nodeProbe struct {
	node    string
	facts   map[string]string
	took    time.Duration // from the creation to the end of the Pod
	err     error         // why the Pod did not run
	address string        // the IP of the Pod
	// addressRequested is whether a second Pod requested the address of the first, and addressErr why it was not assigned.
	addressRequested bool
	addressErr       error
}

// probeNodes runs a probe on each node. If no probe can run, the finding has the reason.
func (s *clusterState) probeNodes(ctx context.Context) ([]nodeProbe, finding) {
	nodes, err := s.nodes(ctx)
	if err != nil {
		return nil, errorFinding(err, callPermissionsFile)
	}
	image, architectures := s.findSampleImage(ctx)
	limits, _ := s.limits(ctx) // without them, nodes are not limited
	nodes = slices.DeleteFunc(slices.Clone(nodes), func(node *corev1.Node) bool {
		return !acceptsVMs(node) || !limits.admit(node) || !hasLabels(node, s.nodeSelector) ||
			len(architectures) > 0 && !slices.Contains(architectures, node.Labels[corev1.LabelArchStable])
	})
	if len(s.nodeSelector) == 0 {
		nodes = preferUntainted(nodes)
	}
	if len(nodes) == 0 {
		return nil, undetermined("no node accepts VMs", "see nodes; check --node-selector, and the ConfigMap "+limitsName)
	}
	nodes = nodes[:min(len(nodes), maxNodes)]
	if !s.imageIsPullable(ctx, image) {
		return nil, undetermined("no image for the probe Pods",
			"set --image to the image of a stemcell, for example ghcr.io/cloudfoundry/ubuntu-noble-stemcell:VERSION")
	}
	switch _, err := s.findNodeImage(ctx); {
	case errors.Is(err, stemcell.ErrNoNodeImage):
		return nil, undetermined(err.Error(), "set --node-image, or run cpi -check -deep on the director's VM")
	case err != nil:
		return nil, fail(err.Error(), "correct kubernetes.node_image, or the cause in the message")
	}
	_ = s.nodeImages().Ensure(ctx) // like create_vm; the node may have the image, otherwise it reports that it cannot pull it
	probes := make([]nodeProbe, len(nodes))
	forEachParallel(len(nodes), func(i int) { probes[i] = s.probeNode(ctx, nodes[i].Name, i == 0) })
	return probes, finding{}
}

// preferUntainted returns the nodes without taints that exclude Pods, for example those of the control plane, or all nodes if there are
// none: VMs may tolerate the taint.
func preferUntainted(nodes []*corev1.Node) []*corev1.Node {
	untainted := slices.DeleteFunc(slices.Clone(nodes), func(node *corev1.Node) bool {
		return slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool { return taint.Effect != corev1.TaintEffectPreferNoSchedule })
	})
	if len(untainted) == 0 {
		return nodes
	}
	return untainted
}

// imageIsPullable reports whether the image is set with --image or used by an existing VM, and not a placeholder.
func (s *clusterState) imageIsPullable(ctx context.Context, image string) bool {
	if s.requestedImage != "" {
		return true
	}
	pods, err := s.pods(ctx)
	return err == nil && slices.ContainsFunc(pods, func(pod *corev1.Pod) bool { return manifest.OwnContainer(pod).Image == image })
}

// probeNode runs a probe on the node. If twice is true, it runs another one that requests the address of the first.
func (s *clusterState) probeNode(ctx context.Context, node string, twice bool) nodeProbe {
	result := nodeProbe{node: node}
	started := time.Now()
	pod, err := s.runProbePod(ctx, node, nil)
	result.took, result.err = time.Since(started), err
	if err != nil {
		return result
	}
	result.facts, result.address = parseFacts(manifest.OwnContainerStatus(pod.Pod).State.Terminated.Message), pod.Status.PodIP
	limits, _ := s.limits(ctx) // as for the Pod
	limits.dropUnknown(result.facts)
	if twice && len(s.config.Network.AddressAnnotations) > 0 && result.address != "" {
		next, err := s.runProbePod(ctx, node, []string{result.address})
		if err == nil && next.Status.PodIP != result.address {
			err = fmt.Errorf("the Pod got address %s instead of %s", next.Status.PodIP, result.address)
		}
		result.addressRequested, result.addressErr = true, err
	}
	return result
}

// runProbePod creates a Pod and its Service, waits until the Pod ends, and deletes both. It returns the last state of the Pod.
func (s *clusterState) runProbePod(ctx context.Context, node string, addresses []string) (manifest.HelperPod, error) {
	vm, err := s.newSamples(ctx).buildVM()
	if err != nil {
		return manifest.HelperPod{}, err
	}
	vm.Name, vm.Director, vm.Group, vm.Call = manifest.VMName("preflight-"+uuid.NewString()[:8]), ProbeDirector, "", uuid.NewString()
	vm.Addresses = addresses
	requested, err := s.config.Network.Annotations(addresses)
	if err != nil {
		return manifest.HelperPod{}, err
	}
	maps.Copy(vm.Annotations, requested)
	c := s.config.NewCall(ProbeDirector, slog.New(slog.DiscardHandler))
	c.Ctx, c.Client, c.ID = ctx, s.client, vm.Call
	// An interruption does not cancel the request: the API server could complete it, and nothing would delete the Pod.
	detached, cancel := c.Detached(deepTimeout)
	defer cancel()
	adopt := func(*corev1.Pod) call.Decision { return call.Adopt }
	pod, _, err := call.EnsureOwned(detached, c.Pods, manifest.NodeProbePod(vm, node).Pod, adopt, detached.DeletePodAndWait)
	if pod == nil {
		return manifest.HelperPod{}, err
	}
	probe := manifest.HelperPod{Pod: pod}
	defer deleteProbePod(c, probe) //nolint:contextcheck // the call contains the context
	if err != nil {
		return probe, err
	}
	_, err = c.Services.Create(ctx, manifest.NodeProbeService(vm.Name).Object(manifest.VMPod{Pod: pod}, ProbeDirector))
	if err != nil && !errors.Is(err, kube.ErrExists) { // its name is new: if it exists, the response was lost
		return probe, err
	}
	err = c.WaitForHelperPod(call.CodeClusterError, probe, "the Pod did not run") //nolint:contextcheck // c contains the context
	return probe, cmp.Or(imageVolumeError(probe), err)
}

// deleteProbePod deletes the Pod, and waits until it is gone. Kubernetes deletes its Service, which has an owner reference.
func deleteProbePod(c *call.Call, probe manifest.HelperPod) {
	detached, cancel := c.Detached(10 * time.Second)
	defer cancel()
	_ = detached.DeletePodAndWait(probe.Pod)
}

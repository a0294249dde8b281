package preflight

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi"
	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/manifest"
)

const (
	// deepTimeout is how long all probes may take together.
	deepTimeout = 50 * time.Second
	// maxNodes is how many nodes are probed, at the most.
	maxNodes = 5
	// deepDirector stands in the place of a director's UUID in what probes make, so that -collect finds it.
	deepDirector = "preflight"
)

// RunDeep runs a Pod like a machine on each node, of some, and returns what those have found. It leaves nothing behind. image is a
// stemcell's; one of the cluster's own machines' when empty.
func RunDeep(ctx context.Context, config cpi.Config, image string) ([]Result, error) {
	client, err := kube.New(config.Kubernetes, retryTimeout)
	if err != nil {
		return nil, err
	}
	return RunDeepWithClient(ctx, config, client, image), nil
}

// RunDeepWithClient is RunDeep for the cluster and the namespace of the client, whatever cluster the configuration names.
func RunDeepWithClient(ctx context.Context, config cpi.Config, client *kube.Client, image string) []Result {
	ctx, cancel := context.WithTimeout(ctx, deepTimeout)
	defer cancel()
	s := newClusterState(config, client, image)
	probes, why := s.probeNodes(ctx)
	results := make([]Result, 0, len(DeepChecks()))
	for _, check := range DeepChecks() {
		found := why
		if found.verdict == "" {
			found = check.evaluate(probes)
		}
		results = append(results, Check{Name: check.Name, Kind: check.Kind}.result(found))
	}
	return results
}

// nodeProbe is what a Pod on a node has told.
type nodeProbe struct {
	node    string
	facts   map[string]string
	took    time.Duration // from its creation to its end
	err     error         // it did not run
	address string        // that it was given
	// addressRequested is whether a second Pod asked for the first one's address, and addressErr why it did not get it, or nil.
	addressRequested bool
	addressErr       error
}

// probeNodes runs one on each node. Where none can be run, the finding says why.
func (s *clusterState) probeNodes(ctx context.Context) ([]nodeProbe, finding) {
	nodes, err := s.nodes(ctx)
	if err != nil {
		return nil, errorFinding(err, callRightsFile)
	}
	nodes = slices.DeleteFunc(slices.Clone(nodes), func(node *corev1.Node) bool { return !acceptsVMs(node) })
	if len(nodes) == 0 {
		return nil, undetermined("no node takes machines", "see the check nodes")
	}
	nodes = nodes[:min(len(nodes), maxNodes)]
	if !s.imageIsPullable(ctx, s.newSamples(ctx).image) {
		return nil, undetermined("there is no image to run",
			"name a stemcell's with -image, as REFERENCE@DIGEST: both are in the cloud_properties of its stemcell.MF")
	}
	probes := make([]nodeProbe, len(nodes))
	var all sync.WaitGroup
	for i, node := range nodes {
		all.Go(func() { probes[i] = s.probeNode(ctx, node.Name, i == 0) })
	}
	all.Wait()
	return probes, finding{}
}

// imageIsPullable reports that the image is one that was named, or that a machine has: not one that only stands for others.
func (s *clusterState) imageIsPullable(ctx context.Context, image string) bool {
	if s.requestedImage != "" {
		return true
	}
	pods, err := s.pods(ctx)
	return err == nil && slices.ContainsFunc(pods, func(pod *corev1.Pod) bool { return manifest.OwnContainer(pod).Image == image })
}

// probeNode runs one on this node, and, for the first node, another one that asks for the same address.
func (s *clusterState) probeNode(ctx context.Context, node string, twice bool) nodeProbe {
	result := nodeProbe{node: node}
	started := time.Now()
	pod, err := s.runProbePod(ctx, node, nil)
	result.took, result.err = time.Since(started), err
	if err != nil {
		return result
	}
	result.facts, result.address = parseFacts(manifest.OwnContainerStatus(pod).State.Terminated.Message), pod.Status.PodIP
	if twice && len(s.config.Network.AddressAnnotations) > 0 && result.address != "" {
		next, err := s.runProbePod(ctx, node, []string{result.address})
		if err == nil && next.Status.PodIP != result.address {
			err = fmt.Errorf("it has %s", next.Status.PodIP)
		}
		result.addressRequested, result.addressErr = true, err
	}
	return result
}

// runProbePod makes the Pod and its Service, waits until it has ended, and removes both. It returns the Pod as it was.
func (s *clusterState) runProbePod(ctx context.Context, node string, addresses []string) (*corev1.Pod, error) {
	vm, err := s.newSamples(ctx).buildVM()
	if err != nil {
		return nil, err
	}
	vm.Name, vm.Director, vm.Group, vm.Call = manifest.VMName("preflight-"+uuid.NewString()[:8]), deepDirector, "", uuid.NewString()
	vm.Addresses = addresses
	requested, err := s.config.Network.Annotations(addresses)
	if err != nil {
		return nil, err
	}
	maps.Copy(vm.Annotations, requested)
	c := &call.Call{Ctx: ctx, Client: s.client, ID: func() string { return vm.Call }, Director: deepDirector,
		PodOptions: s.config.Pods, Log: slog.New(slog.DiscardHandler)}
	pod, err := c.Pods.Create(ctx, manifest.NodeProbePod(vm, node))
	if err != nil {
		return nil, err
	}
	defer deleteProbePod(c, pod) //nolint:contextcheck // the call has it
	if _, err := c.Services.Create(ctx, manifest.NodeProbeService(vm.Name).Object(pod, deepDirector)); err != nil {
		return nil, err
	}
	return pod, c.WaitForHelperPod(pod, "the Pod did not run") //nolint:contextcheck // likewise
}

// deleteProbePod deletes the Pod, and waits until it is gone; its Service goes with it.
func deleteProbePod(c *call.Call, pod *corev1.Pod) {
	detached, cancel := c.Detached(10 * time.Second)
	defer cancel()
	_ = detached.DeletePodAndWait(pod)
}

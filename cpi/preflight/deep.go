package preflight

import (
	"context"
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
	// deepLimit is how long all probes may take together.
	deepLimit = 50 * time.Second
	// manyNodes is how many nodes are probed, at the most.
	manyNodes = 5
	// deepDirector stands in the place of a director's UUID in what probes make, so that -collect finds it.
	deepDirector = "preflight"
)

// RunDeep runs a Pod like a machine on each node, of some, and returns what those have found. It leaves nothing behind. image is a
// stemcell's; one of the cluster's own machines' when empty.
func RunDeep(ctx context.Context, config cpi.Config, image string) ([]Result, error) {
	client, err := kube.New(config.Kubernetes, patience)
	if err != nil {
		return nil, err
	}
	return LookDeep(ctx, config, client, image), nil
}

// LookDeep is RunDeep for the cluster and the namespace of the client, whatever cluster the configuration names.
func LookDeep(ctx context.Context, config cpi.Config, client *kube.Client, image string) []Result {
	ctx, cancel := context.WithTimeout(ctx, deepLimit)
	defer cancel()
	s := newSubject(config, client, image)
	probes, why := s.probes(ctx)
	results := make([]Result, 0, len(DeepChecks()))
	for _, check := range DeepChecks() {
		found := why
		if found.verdict == "" {
			found = check.judge(probes)
		}
		results = append(results, Check{Name: check.Name, Kind: check.Kind}.result(found))
	}
	return results
}

// probe is what a Pod on a node has told.
type probe struct {
	node    string
	facts   map[string]string
	took    time.Duration // from its creation to its end
	failure error         // it did not run
	address string        // that it was given
	// again tells whether a second Pod was given the first one's address, when it asked for it; "" when none was tried.
	again string
}

// probes runs one on each node. Where none can be run, the finding says why.
func (s *subject) probes(ctx context.Context) ([]probe, finding) {
	nodes, err := s.nodes(ctx)
	if err != nil {
		return nil, failed(err, rightsOfCalls)
	}
	nodes = slices.DeleteFunc(slices.Clone(nodes), func(node *corev1.Node) bool { return !takesMachines(node) })
	if len(nodes) == 0 {
		return nil, unknown("no node takes machines", "see the check nodes")
	}
	nodes = nodes[:min(len(nodes), manyNodes)]
	if !s.pullable(ctx, s.samples(ctx).image) {
		return nil, unknown("there is no image to run",
			"name a stemcell's with -image, as REFERENCE@DIGEST: both are in the cloud_properties of its stemcell.MF")
	}
	probes := make([]probe, len(nodes))
	var all sync.WaitGroup
	for i, node := range nodes {
		all.Go(func() { probes[i] = s.probe(ctx, node.Name, i == 0) })
	}
	all.Wait()
	return probes, finding{}
}

// pullable reports that the image is one that was named, or that a machine has: not one that only stands for others.
func (s *subject) pullable(ctx context.Context, image string) bool {
	if s.image != "" {
		return true
	}
	pods, err := s.pods(ctx)
	return err == nil && slices.ContainsFunc(pods, func(pod *corev1.Pod) bool { return manifest.Own(pod).Image == image })
}

// probe runs one on this node, and, for the first node, another one that asks for the same address.
func (s *subject) probe(ctx context.Context, node string, twice bool) probe {
	made := probe{node: node}
	started := time.Now()
	pod, err := s.ask(ctx, node, nil)
	made.took, made.failure = time.Since(started), err
	if err != nil {
		return made
	}
	made.facts, made.address = facts(manifest.OwnStatus(pod).State.Terminated.Message), pod.Status.PodIP
	if twice && len(s.config.Network.AddressAnnotations) > 0 && made.address != "" {
		made.again = "no"
		if next, err := s.ask(ctx, node, []string{made.address}); err == nil && next.Status.PodIP == made.address {
			made.again = "yes"
		}
	}
	return made
}

// ask makes the Pod and its Service, waits until it has ended, and removes both. It returns the Pod as it was.
func (s *subject) ask(ctx context.Context, node string, addresses []string) (*corev1.Pod, error) {
	vm, err := s.samples(ctx).vm()
	if err != nil {
		return nil, err
	}
	vm.Name, vm.Director, vm.Group, vm.Call = manifest.VMName("preflight-"+uuid.NewString()[:8]), deepDirector, "", uuid.NewString()
	vm.Addresses = addresses
	asked, err := s.config.Network.Annotations(addresses)
	if err != nil {
		return nil, err
	}
	maps.Copy(vm.Annotations, asked)
	c := &call.Call{Ctx: ctx, Client: s.client, ID: func() string { return vm.Call }, Director: deepDirector,
		PodOptions: s.config.Pods, Log: slog.New(slog.DiscardHandler)}
	pod, err := c.Pods.Create(ctx, manifest.Probe(vm, node))
	if err != nil {
		return nil, err
	}
	defer removed(c, pod) //nolint:contextcheck // the call has it
	if _, err := c.Services.Create(ctx, manifest.ProbeService(vm.Name).Object(pod, deepDirector)); err != nil {
		return nil, err
	}
	return pod, c.AwaitErrand(pod, "the Pod did not run") //nolint:contextcheck // likewise
}

// removed deletes the Pod, and waits until it is gone; its Service goes with it.
func removed(c *call.Call, pod *corev1.Pod) {
	detached, cancel := c.Detached(10 * time.Second)
	defer cancel()
	_ = detached.End(pod)
}

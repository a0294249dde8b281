package preflight

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
)

// Oldest versions of nodes with image volumes, which contain the CPI's program in VMs. A kubelet of Kubernetes 1.35 enables them by
// default. https://github.com/containerd/containerd/pull/10579 and https://github.com/cri-o/cri-o/pull/8317 implement them. The kubelet may
// be older than the API server.
var (
	oldestKubelet  = version.MustParseGeneric(fmt.Sprintf("1.%d", oldestMinor))
	oldestRuntimes = map[string]*version.Version{"containerd": version.MustParseGeneric("2.1"), "cri-o": version.MustParseGeneric("1.31")}
)

func inspectNodeVersions(ctx context.Context, s *clusterState) finding {
	nodes, err := s.nodes(ctx)
	if err != nil {
		return errorFinding(err, callPermissionsFile)
	}
	accepting := slices.DeleteFunc(slices.Clone(nodes), func(node *corev1.Node) bool { return !acceptsVMs(node) })
	var unsupported, unknown []string
	for _, node := range accepting {
		info := node.Status.NodeInfo
		description := fmt.Sprintf("%s (kubelet %s, %s)", node.Name, info.KubeletVersion, info.ContainerRuntimeVersion)
		supported, known := supportsImageVolumes(info)
		switch {
		case !known:
			unknown = append(unknown, description)
		case !supported:
			unsupported = append(unsupported, description)
		}
	}
	switch {
	case len(accepting) == 0:
		return undetermined("no node accepts VMs", "see nodes")
	case len(unsupported) > 0:
		return fail("no image volumes on "+strings.Join(unsupported, ", "), fmt.Sprintf("upgrade these nodes to Kubernetes %s or later, with "+
			"containerd %s or CRI-O %s or later, or cordon them", oldestKubelet, oldestRuntimes["containerd"], oldestRuntimes["cri-o"]))
	case len(unknown) > 0:
		return undetermined("unknown versions: "+strings.Join(unknown, ", "), "the deep check node-image shows whether they have image volumes")
	}
	return pass(fmt.Sprintf("%d nodes have image volumes", len(accepting)))
}

// supportsImageVolumes reports whether the node has image volumes, by the versions of its kubelet and its container runtime. known is false
// if it does not report them.
func supportsImageVolumes(info corev1.NodeSystemInfo) (supported, known bool) {
	kubelet, err := version.ParseGeneric(info.KubeletVersion)
	if err != nil {
		return false, false
	}
	name, number, _ := strings.Cut(info.ContainerRuntimeVersion, "://")
	runtime, err := version.ParseGeneric(number)
	if err != nil {
		return false, false
	}
	oldest, ok := oldestRuntimes[name]
	return ok && runtime.AtLeast(oldest) && kubelet.AtLeast(oldestKubelet), true
}

package preflight

import (
	"fmt"
	"strings"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
)

// imageVolumeError returns the error of a probe on a node that mounted the image of bosh-node, but cannot run the program in it, or nil.
// Some runtimes mount image volumes empty, without an error.
func imageVolumeError(probe manifest.HelperPod) error {
	terminated := manifest.OwnContainerStatus(probe.Pod).State.Terminated
	if terminated == nil || !kube.FailedToStart(terminated) {
		return nil
	}
	message := manifest.TerminationMessage(terminated)
	switch {
	case strings.Contains(message, "no such file or directory"):
		return call.CodeNodeImageUnavailable.Errorf("the node mounts image volumes empty: %s", message)
	case strings.Contains(message, "permission denied"):
		return call.CodeNodeImageUnavailable.Errorf("the node does not execute programs in image volumes: %s", message)
	}
	return nil
}

func evaluateNodeImage(probes []nodeProbe) finding {
	var failed []string
	var passed []nodeProbe
	for _, probe := range probes {
		switch {
		case call.CodeNodeImageUnavailable.Is(probe.err):
			failed = append(failed, fmt.Sprintf("on %s: %v", probe.node, call.AsBOSHError(probe.err).WithCode()))
		case probe.err == nil:
			passed = append(passed, probe)
		}
	}
	switch {
	case len(failed) > 0:
		return fail(strings.Join(failed, "; "), "correct the cause in the message; docs/reference/errors.md describes its code")
	case len(passed) > 0:
		return pass("bosh-node ran from an image volume on " + nodeNames(passed))
	}
	return undetermined("no probe ran", "see run-vm")
}

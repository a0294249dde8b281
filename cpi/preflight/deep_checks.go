package preflight

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// DeepCheck evaluates one requirement from the results of the probes.
type DeepCheck struct {
	Name     string
	Kind     Kind
	evaluate func([]nodeProbe) finding
}

// DeepChecks returns all deep checks, in the order of the report.
func DeepChecks() []DeepCheck {
	return []DeepCheck{
		{"run-vm", Required, evaluateStart},
		{"loop-devices", Required, requireFact("loop", "no loop device is available",
			"load the module loop on these nodes (modprobe loop), or use StorageClasses with volume_mode: Block for disks")},
		{"vm-state", Advised, requireFact("overlay", "overlay filesystems cannot be mounted",
			"load the module overlay; without it, a restart of a VM's container reverts changes to /etc and other system directories")},
		{"filesystems", Advised, evaluateKernel("ext4", "xfs")},
		{"links", Advised, evaluateKernel("dummy", "bridge")},
		{"cgroups", Advised, evaluateCgroups},
		{"open-files", Advised, requireFact("open-files", "a VM cannot have 524,288 open files",
			"if jobs need that many, raise LimitNOFILE of the container runtime's service")},
		{"cluster-dns", Advised, requireFact("dns", "cannot resolve kubernetes.default.svc",
			"check that the cluster's DNS runs; VMs with their own dns servers do not need it")},
		{"in-cluster-api", Advised, requireFact("api", "a VM cannot reach the API server",
			"check network policies and the Service default/kubernetes; a director in the cluster requires access")},
		{"hairpin", Advised, requireFact("hairpin", "a VM cannot reach itself through its Service",
			"enable hairpin traffic in the network plugin (hairpinMode), or use static addresses; a director behind a Service requires it")},
		{"requested-address", Advised, evaluateRequestedAddress},
	}
}

func evaluateStart(probes []nodeProbe) finding {
	var failed []string
	var longest time.Duration
	for _, probe := range probes {
		if probe.err != nil {
			failed = append(failed, fmt.Sprintf("on %s: %v", probe.node, probe.err))
		}
		longest = max(longest, probe.took)
	}
	if len(failed) > 0 {
		return fail(strings.Join(failed, "; "), "correct the cause in the message; docs/explanation/vms.md has the requirements of nodes")
	}
	return pass(fmt.Sprintf("a Pod like a VM Pod ran on %s, in at most %.1f s", nodeNames(probes), longest.Seconds()))
}

// requireFact returns the evaluation of a fact that must be "yes" on each node. problem describes a node without it.
func requireFact(fact, problem, remedy string) func([]nodeProbe) finding {
	return func(probes []nodeProbe) finding {
		yes, no := splitByFact(probes, fact)
		switch {
		case len(no) > 0:
			return fail(problem+" on "+nodeNames(no), remedy)
		case len(yes) == 0:
			return undetermined("no probe reported it", "see run-vm")
		}
		return pass("on " + nodeNames(yes))
	}
}

// evaluateKernel returns the evaluation of kernel features that only some jobs require.
func evaluateKernel(facts ...string) func([]nodeProbe) finding {
	return func(probes []nodeProbe) finding {
		var supported, missing []string
		for _, fact := range facts {
			yes, no := splitByFact(probes, fact)
			if len(no) > 0 {
				missing = append(missing, fact+" on "+nodeNames(no))
			} else if len(yes) > 0 {
				supported = append(supported, fact)
			}
		}
		switch {
		case len(missing) > 0:
			return warn("the kernel lacks "+strings.Join(missing, ", "),
				"load these modules on the nodes if jobs require them: Garden requires xfs, BOSH DNS a dummy link")
		case len(supported) == 0:
			return undetermined("no probe reported it", "see run-vm")
		}
		return pass(strings.Join(supported, ", "))
	}
}

func evaluateCgroups(probes []nodeProbe) finding {
	var messages []string
	for _, version := range []string{"v1", "v2"} {
		matching := slices.DeleteFunc(slices.Clone(probes), func(probe nodeProbe) bool { return probe.facts["cgroup"] != version })
		if len(matching) > 0 {
			messages = append(messages, version+" on "+nodeNames(matching))
		}
	}
	if len(messages) == 0 {
		return undetermined("no probe reported it", "see run-vm")
	}
	return pass("cgroup " + strings.Join(messages, ", "))
}

func evaluateRequestedAddress(probes []nodeProbe) finding {
	if len(probes) == 0 || !probes[0].addressRequested {
		return undetermined("no address was requested", "see addresses")
	}
	first := probes[0]
	if first.addressErr == nil {
		return pass("a Pod that requested " + first.address + " has this address")
	}
	return fail("address "+first.address+" was requested on "+first.node+" but not assigned: "+first.addressErr.Error(),
		"use dynamic networks, or see docs/guides/networks.md for the annotation that the network plugin reads")
}

// splitByFact returns the probes in which the fact is "yes" and "no". It ignores probes without the fact.
func splitByFact(probes []nodeProbe, fact string) (yes, no []nodeProbe) {
	for _, probe := range probes {
		switch probe.facts[fact] {
		case "yes":
			yes = append(yes, probe)
		case "no":
			no = append(no, probe)
		}
	}
	return yes, no
}

func nodeNames(probes []nodeProbe) string {
	var nodes []string
	for _, probe := range probes {
		nodes = append(nodes, probe.node)
	}
	return strings.Join(nodes, ", ")
}

// parseFacts parses the lines "name value" of a probe's termination message.
func parseFacts(message string) map[string]string {
	parsed := map[string]string{}
	for line := range strings.Lines(message) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			parsed[name] = value
		}
	}
	return parsed
}

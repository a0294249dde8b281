package preflight

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// DeepCheck is one thing that probes tell.
type DeepCheck struct {
	Name     string
	Kind     Kind
	evaluate func([]nodeProbe) finding
}

// DeepChecks are all of them, in the order in which they are reported.
func DeepChecks() []DeepCheck {
	return []DeepCheck{
		{"run-machine", Required, evaluateStart},
		{"loop-devices", Required, requireFact("loop", "no loop device can be had",
			"load the module loop on these nodes (modprobe loop), or have disks on classes with volume_mode: Block")},
		{"machine-state", Advised, requireFact("overlay", "no overlay can be mounted",
			"what jobs change in /etc and elsewhere is lost at a restart of a machine's container; load the module overlay")},
		{"filesystems", Advised, evaluateKernel("ext4", "xfs")},
		{"links", Advised, evaluateKernel("dummy", "bridge")},
		{"cgroups", Advised, evaluateCgroups},
		{"open-files", Advised, requireFact("open-files", "a machine cannot have 524,288 open files",
			"raise LimitNOFILE of the container runtime's service, if jobs need that")},
		{"cluster-dns", Advised, requireFact("dns", "the name kubernetes.default.svc is unknown",
			"see that the cluster's DNS runs; VMs with dns servers of their own do not need it")},
		{"in-cluster-api", Advised, requireFact("api", "the API server cannot be reached from within",
			"a director in the cluster needs it: see network policies and the Service default/kubernetes")},
		{"hairpin", Advised, requireFact("hairpin", "a machine does not reach itself through its Service",
			"a director behind a Service needs it: have the network plugin do hairpin traffic (hairpinMode), or use static addresses")},
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
		return fail(strings.Join(failed, "; "), "see docs/machines.md for what nodes have to have; the message names what is in the way")
	}
	return pass(fmt.Sprintf("a Pod like a machine ran on %s, in %.1f s at the most", nodeNames(probes), longest.Seconds()))
}

// requireFact is the judgement about a fact that is to be "yes" on each node.
func requireFact(fact, lacks, advice string) func([]nodeProbe) finding {
	return func(probes []nodeProbe) finding {
		yes, no := splitByFact(probes, fact)
		switch {
		case len(no) > 0:
			return fail(lacks+" on "+nodeNames(no), advice)
		case len(yes) == 0:
			return undetermined("no probe has told", "see run-machine")
		}
		return pass("on " + nodeNames(yes))
	}
}

// evaluateKernel is the judgement about what kernels can do beside what every machine needs.
func evaluateKernel(facts ...string) func([]nodeProbe) finding {
	return func(probes []nodeProbe) finding {
		var have, lack []string
		for _, fact := range facts {
			yes, no := splitByFact(probes, fact)
			if len(no) > 0 {
				lack = append(lack, fact+" on "+nodeNames(no))
			} else if len(yes) > 0 {
				have = append(have, fact)
			}
		}
		switch {
		case len(lack) > 0:
			return warn("the kernel lacks "+strings.Join(lack, ", "),
				"have these modules on the nodes if jobs need them: Garden wants xfs, BOSH DNS a dummy link")
		case len(have) == 0:
			return undetermined("no probe has told", "see run-machine")
		}
		return pass(strings.Join(have, ", "))
	}
}

func evaluateCgroups(probes []nodeProbe) finding {
	var messages []string
	for _, version := range []string{"v1", "v2"} {
		matching := slices.DeleteFunc(slices.Clone(probes), func(each nodeProbe) bool { return each.facts["cgroup"] != version })
		if len(matching) > 0 {
			messages = append(messages, version+" on "+nodeNames(matching))
		}
	}
	if len(messages) == 0 {
		return undetermined("no probe has told", "see run-machine")
	}
	return pass("cgroup " + strings.Join(messages, ", "))
}

func evaluateRequestedAddress(probes []nodeProbe) finding {
	if len(probes) == 0 || !probes[0].addressRequested {
		return undetermined("no address was asked for", "see the check addresses")
	}
	first := probes[0]
	if first.addressErr == nil {
		return pass("a Pod that asked for " + first.address + " was given it")
	}
	return fail("a Pod that asked for "+first.address+" on "+first.node+" was not given it: "+first.addressErr.Error(),
		"use dynamic networks, or see docs/networks.md for what this cluster's network plugin reads")
}

// splitByFact sorts the probes by a fact, those that do not tell it left out.
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
	for _, each := range probes {
		nodes = append(nodes, each.node)
	}
	return strings.Join(nodes, ", ")
}

// parseFacts are the lines "name value" of a probe's message.
func parseFacts(message string) map[string]string {
	parsed := map[string]string{}
	for line := range strings.Lines(message) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			parsed[name] = value
		}
	}
	return parsed
}

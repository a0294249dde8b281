package preflight

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// DeepCheck is one thing that probes tell.
type DeepCheck struct {
	Name  string
	Kind  Kind
	judge func([]probe) finding
}

// DeepChecks are all of them, in the order in which they are reported.
func DeepChecks() []DeepCheck {
	return []DeepCheck{
		{"run-machine", Required, lookAtStart},
		{"loop-devices", Required, all("loop", "no loop device can be had",
			"load the module loop on these nodes (modprobe loop), or have disks on classes with volume_mode: Block")},
		{"machine-state", Advised, all("overlay", "no overlay can be mounted",
			"what jobs change in /etc and elsewhere is lost at a restart of a machine's container; load the module overlay")},
		{"filesystems", Advised, kernelHas("ext4", "xfs")},
		{"links", Advised, kernelHas("dummy", "bridge")},
		{"cgroups", Advised, lookAtCgroups},
		{"open-files", Advised, all("open-files", "a machine cannot have 524,288 open files",
			"raise LimitNOFILE of the container runtime's service, if jobs need that")},
		{"cluster-dns", Advised, all("dns", "the name kubernetes.default.svc is unknown",
			"see that the cluster's DNS runs; VMs with dns servers of their own do not need it")},
		{"in-cluster-api", Advised, all("api", "the API server cannot be reached from within",
			"a director in the cluster needs it: see network policies and the Service default/kubernetes")},
		{"hairpin", Advised, all("hairpin", "a machine does not reach itself through its Service",
			"a director behind a Service needs it: have the network plugin do hairpin traffic (hairpinMode), or use static addresses")},
		{"requested-address", Advised, lookAtAgain},
	}
}

func lookAtStart(probes []probe) finding {
	var failed []string
	var longest time.Duration
	for _, each := range probes {
		if each.failure != nil {
			failed = append(failed, fmt.Sprintf("on %s: %v", each.node, each.failure))
		}
		longest = max(longest, each.took)
	}
	if len(failed) > 0 {
		return fails(strings.Join(failed, "; "), "see docs/machines.md for what nodes have to have; the message names what is in the way")
	}
	return ok(fmt.Sprintf("a Pod like a machine ran on %s, in %.1f s at the most", names(probes), longest.Seconds()))
}

// all is the judgement about a fact that is to be "yes" on each node.
func all(fact, lacks, advice string) func([]probe) finding {
	return func(probes []probe) finding {
		yes, no := split(probes, fact)
		switch {
		case len(no) > 0:
			return fails(lacks+" on "+names(no), advice)
		case len(yes) == 0:
			return unknown("no probe has told", "see run-machine")
		}
		return ok("on " + names(yes))
	}
}

// kernelHas is the judgement about what kernels can do beside what every machine needs.
func kernelHas(facts ...string) func([]probe) finding {
	return func(probes []probe) finding {
		var have, lack []string
		for _, fact := range facts {
			yes, no := split(probes, fact)
			if len(no) > 0 {
				lack = append(lack, fact+" on "+names(no))
			} else if len(yes) > 0 {
				have = append(have, fact)
			}
		}
		switch {
		case len(lack) > 0:
			return warns("the kernel lacks "+strings.Join(lack, ", "),
				"have these modules on the nodes if jobs need them: Garden wants xfs, BOSH DNS a dummy link")
		case len(have) == 0:
			return unknown("no probe has told", "see run-machine")
		}
		return ok(strings.Join(have, ", "))
	}
}

func lookAtCgroups(probes []probe) finding {
	var said []string
	for _, version := range []string{"v1", "v2"} {
		of := slices.DeleteFunc(slices.Clone(probes), func(each probe) bool { return each.facts["cgroup"] != version })
		if len(of) > 0 {
			said = append(said, version+" on "+names(of))
		}
	}
	if len(said) == 0 {
		return unknown("no probe has told", "see run-machine")
	}
	return ok("cgroup " + strings.Join(said, ", "))
}

func lookAtAgain(probes []probe) finding {
	if len(probes) == 0 || probes[0].again == "" {
		return unknown("no address was asked for", "see the check addresses")
	}
	first := probes[0]
	if first.again == "yes" {
		return ok("a Pod that asked for " + first.address + " was given it")
	}
	return fails("a Pod that asked for "+first.address+" on "+first.node+" was not given it",
		"use dynamic networks, or see docs/networks.md for what this cluster's network plugin reads")
}

// split sorts the probes by a fact, those that do not tell it left out.
func split(probes []probe, fact string) (yes, no []probe) {
	for _, each := range probes {
		switch each.facts[fact] {
		case "yes":
			yes = append(yes, each)
		case "no":
			no = append(no, each)
		}
	}
	return yes, no
}

func names(probes []probe) string {
	var nodes []string
	for _, each := range probes {
		nodes = append(nodes, each.node)
	}
	return strings.Join(nodes, ", ")
}

// facts are the lines "name value" of a probe's message.
func facts(message string) map[string]string {
	told := map[string]string{}
	for line := range strings.Lines(message) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			told[name] = value
		}
	}
	return told
}

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

// CheckInClusterAPI is the name of the deep check for access to the API server.
const CheckInClusterAPI = "in-cluster-api"

// DeepChecks returns all deep checks, in the order of the report.
func DeepChecks() []DeepCheck {
	return []DeepCheck{
		{"run-vm", Required, evaluateStart},
		{"node-image", Required, evaluateNodeImage},
		{"loop-devices", Required, requireFact("loop", "no loop device is available",
			"load the module loop on these nodes (modprobe loop), or use StorageClasses with volume_mode: Block for disks")},
		{"vm-state", Advised, requireFact("overlay", "overlay filesystems cannot be mounted",
			"load the module overlay; without it, a restart of a VM's container reverts changes to /etc and other system directories")},
		{"filesystems", Advised, evaluateFeatures(
			feature{"ext4", "load the module ext4"}, feature{"xfs", "load the module xfs, which Garden requires"})},
		{"links", Advised, requireFact("dummy", "network links of type dummy cannot be created, which BOSH DNS requires on newer stemcells",
			"install and load the module dummy on these nodes (modprobe dummy)")},
		{"cgroups", Advised, evaluateCgroups},
		{"open-files", Advised, requireFact("open-files", "a VM cannot have 524,288 open files",
			"if jobs need that many, raise LimitNOFILE of the container runtime's service")},
		{"cluster-dns", Advised, requireFact("dns", "cannot resolve kubernetes.default.svc",
			"check that the cluster's DNS runs; VMs with their own dns servers do not need it")},
		{CheckInClusterAPI, Advised, requireFact("api", "a VM cannot reach the API server",
			"check network policies and the Service default/kubernetes; a director in the cluster requires access")},
		{"hairpin", Advised, requireFact("hairpin", "a VM cannot reach itself through its Service",
			"enable hairpin traffic in the network plugin (hairpinMode), or use static addresses; a director behind a Service requires it")},
		{"diego-cells", Advised, evaluateFeatures(
			feature{"user-namespaces", "raise the sysctl user.max_user_namespaces"},
			feature{"apparmor", `set garden.apparmor_profile: ""`},
			feature{"xfs-quotas", "use nodes with a kernel that has CONFIG_XFS_QUOTA"},
			feature{"cgroup-controllers", "mount all cgroup controllers in /proc/cgroups, as systemd does"},
			feature{"bridge", "load the module bridge"},
			feature{"ip-forwarding", "allow privileged Pods to set net.ipv4.ip_forward"},
			feature{"nat", "load the module nf_tables, or iptable_nat"})},
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
		return fail(strings.Join(failed, "; "), "correct the cause in the message; docs/reference/compatibility.md has the requirements of nodes")
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

// feature is a fact about nodes that only some jobs require, and the remedy if it is "no".
type feature struct{ fact, remedy string }

// evaluateFeatures returns the evaluation of features.
func evaluateFeatures(features ...feature) func([]nodeProbe) finding {
	return func(probes []nodeProbe) finding {
		var supported, missing, remedies []string
		for _, feature := range features {
			yes, no := splitByFact(probes, feature.fact)
			if len(no) > 0 {
				missing = append(missing, feature.fact+" on "+nodeNames(no))
				remedies = append(remedies, feature.remedy)
			} else if len(yes) > 0 {
				supported = append(supported, feature.fact)
			}
		}
		switch {
		case len(missing) > 0:
			return warn("missing: "+strings.Join(missing, ", "), strings.Join(remedies, "; "))
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

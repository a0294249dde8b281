package report

import (
	"fmt"
	"slices"
)

// Goal is an upper limit for a value.
type Goal struct {
	Name  string
	Value float64
	Limit float64
	// Floor explains why the CPI cannot reach the limit, or is empty.
	Floor string
}

func (g Goal) String() string {
	return fmt.Sprintf("%s %.2f %.2f %s", g.Name, g.Value, g.Limit, g.Result())
}

// Result returns whether the goal is met, and otherwise the floor.
func (g Goal) Result() string {
	switch {
	case g.Met():
		return "met"
	case g.Floor != "":
		return "missed: " + g.Floor
	}
	return "missed"
}

// Met reports whether the goal is met.
func (g Goal) Met() bool { return g.Value <= g.Limit }

// Floors of goals. docs/development/benchmarks.md has the measurements.
const (
	startFloor   = "the start of a Go program and the initialization of client-go's packages"
	linkFloor    = "client-go, go-containerregistry and HTTP/2"
	kubeletFloor = "the kubelet notices the check and the end of the container once a second each"
	deployFloor  = "each call is a process, and needs CPU time that the control plane on the same host lacks"
)

// Names of the compared programs.
const (
	Info    = "info"
	HasVM   = "has_vm"
	Curl    = "curl"
	Kubectl = "kubectl get"
)

// Goals returns the goals for the cost of calls. Times are relative to another program that does a comparable thing in the same run, so
// that they depend little on the host.
func (r *Results) Goals() []Goal {
	return slices.Concat(r.callGoals(), r.deployGoals(), r.Node.goals(), r.sizeGoals())
}

// sizeGoals returns goals for the size of a VM with a disk in etcd.
func (r *Results) sizeGoals() []Goal {
	if len(r.Objects) == 0 {
		return nil
	}
	total := 0
	for _, object := range r.Objects {
		total += object.Bytes
	}
	return []Goal{{"etcd_kb", float64(total) / 1000, 20, ""}}
}

func (r *Results) callGoals() []Goal {
	info, hasVM, curl := r.costOf(Info), r.costOf(HasVM), r.costOf(Curl)
	if len(curl.Wall) == 0 {
		return nil
	}
	return []Goal{
		{"info/curl_wall", info.Wall.Median() / curl.Wall.Median(), 0.5, ""},
		{"info/curl_cpu", info.CPU.Median() / curl.CPU.Median(), 0.5, startFloor},
		{"has_vm/curl_wall", hasVM.Wall.Median() / curl.Wall.Median(), 0.9, ""},
		{"has_vm/curl_cpu", hasVM.CPU.Median() / curl.CPU.Median(), 0.75, startFloor},
		{"has_vm_peak_mib", hasVM.Peak.Median(), 12, linkFloor},
		{"binary_mib", r.BinarySizeMiB, 12, linkFloor},
	}
}

// deployGoals returns goals relative to a minimal client that creates the same objects.
func (r *Results) deployGoals() (goals []Goal) {
	for _, deploy := range r.Deploys {
		goals = append(goals, Goal{fmt.Sprintf("deploy_%d/client_wall", deploy.VMs), deploy.Seconds / deploy.Bare, 1.2, deployFloor})
	}
	return goals
}

func (n *Node) goals() []Goal {
	if n == nil {
		return nil
	}
	goals := []Goal{
		{"create_vm/client_start", n.Create.Median() / n.ClientStart.Median(), 1.05, ""},
		{"client_start/init_start", n.ClientStart.Median() / n.InitStart.Median(), 1.25, ""},
		{"attach_disk/disk_pod_start", n.Attach.Median() / n.DiskPodStart.Median(), 1.15, ""},
		{"detach_disk/disk_pod_end", n.Detach.Median() / n.DiskPodEnd.Median(), 0.6, kubeletFloor},
		{"delete_vm/bare_end", n.Delete.Median() / n.BareEnd.Median(), 0.5, ""},
	}
	if len(n.BootCPU) > 0 {
		goals = append(goals, Goal{"boot_cpu_ms", n.BootCPU.Median(), 120, ""})
	}
	return goals
}

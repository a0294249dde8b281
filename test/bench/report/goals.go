package report

import "fmt"

// Goal is an upper limit for a value.
type Goal struct {
	Name  string
	Value float64
	Limit float64
}

func (g Goal) String() string {
	result := "met"
	if !g.Met() {
		result = "missed"
	}
	return fmt.Sprintf("%s %.2f %.2f %s", g.Name, g.Value, g.Limit, result)
}

// Met reports whether the goal is met.
func (g Goal) Met() bool { return g.Value <= g.Limit }

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
	return append(r.callGoals(), append(r.deployGoals(), r.Node.goals()...)...)
}

func (r *Results) callGoals() []Goal {
	info, hasVM, curl := r.costOf(Info), r.costOf(HasVM), r.costOf(Curl)
	if len(curl.Wall) == 0 {
		return nil
	}
	return []Goal{
		{"info/curl_wall", info.Wall.Median() / curl.Wall.Median(), 0.5},
		{"info/curl_cpu", info.CPU.Median() / curl.CPU.Median(), 0.5},
		{"has_vm/curl_wall", hasVM.Wall.Median() / curl.Wall.Median(), 0.9},
		{"has_vm/curl_cpu", hasVM.CPU.Median() / curl.CPU.Median(), 0.75},
		{"has_vm_peak_mib", hasVM.Peak.Median(), 12},
		{"binary_mib", r.BinarySizeMiB, 12},
	}
}

// deployGoals returns goals relative to a minimal client that creates the same objects.
func (r *Results) deployGoals() (goals []Goal) {
	for _, deploy := range r.Deploys {
		goals = append(goals, Goal{fmt.Sprintf("deploy_%d/client_wall", deploy.VMs), deploy.Seconds / deploy.Bare, 1.2})
	}
	return goals
}

func (n *Node) goals() []Goal {
	if n == nil {
		return nil
	}
	return []Goal{
		{"create_vm/client_start", n.Create.Median() / n.ClientStart.Median(), 1.05},
		{"client_start/init_start", n.ClientStart.Median() / n.InitStart.Median(), 1.25},
		{"attach_disk/disk_pod_start", n.Attach.Median() / n.DiskPodStart.Median(), 1.15},
		{"detach_disk/disk_pod_end", n.Detach.Median() / n.DiskPodEnd.Median(), 0.6},
		{"delete_vm/bare_end", n.Delete.Median() / n.BareEnd.Median(), 0.5},
	}
}

package figures

import "fmt"

// Goal is a figure that is to stay below another.
type Goal struct {
	Name  string
	Value float64
	Limit float64
}

func (g Goal) String() string {
	held := "held"
	if g.Value > g.Limit {
		held = "missed"
	}
	return fmt.Sprintf("%s %.2f %.2f %s", g.Name, g.Value, g.Limit, held)
}

// Held reports whether the figure is as low as it is to be.
func (g Goal) Held() bool { return g.Value <= g.Limit }

// Names of programs that are measured side by side.
const (
	Info    = "info"
	HasVM   = "has_vm"
	Curl    = "curl"
	Kubectl = "kubectl get"
)

// Goals are what calls are to cost. Time is compared with that of another program, or of a bare Pod, in the same run, so that it
// depends little on the machine.
func (r *Results) Goals() []Goal {
	return append(r.callGoals(), append(r.deployGoals(), r.Node.goals()...)...)
}

func (r *Results) callGoals() []Goal {
	info, has, curl := r.costOf(Info), r.costOf(HasVM), r.costOf(Curl)
	if len(curl.Wall) == 0 {
		return nil
	}
	return []Goal{
		{"info/curl_wall", info.Wall.Median() / curl.Wall.Median(), 0.5},
		{"info/curl_cpu", info.CPU.Median() / curl.CPU.Median(), 0.5},
		{"has_vm/curl_wall", has.Wall.Median() / curl.Wall.Median(), 0.9},
		{"has_vm/curl_cpu", has.CPU.Median() / curl.CPU.Median(), 0.9},
		{"has_vm_peak_mib", has.Peak.Median(), 12},
		{"binary_mib", r.Binary, 12},
	}
}

// deployGoals have the CPI send at least 0.8 times as many requests in the same time as a minimal client.
func (r *Results) deployGoals() (all []Goal) {
	for _, deploy := range r.Deploys {
		all = append(all, Goal{fmt.Sprintf("deploy_%d/client_wall", deploy.Machines), deploy.Seconds / deploy.Bare, 1 / 0.8})
	}
	return all
}

func (n *Node) goals() []Goal {
	if n == nil {
		return nil
	}
	return []Goal{
		{"create_vm/bare_start", n.Create.Median() / n.BareStart.Median(), 1.15},
		{"attach_disk/bare_start", n.Attach.Median() / n.BareStart.Median(), 0.8},
		{"detach_disk/bare_end", n.Detach.Median() / n.BareEnd.Median(), 1},
	}
}

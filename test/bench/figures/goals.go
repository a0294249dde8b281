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

// Goals are what one call is to cost. Time is compared with curl's in the same run, so that it depends little on the machine.
func (r *Results) Goals() []Goal {
	info, has, curl := r.call(Info), r.call(HasVM), r.call(Curl)
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

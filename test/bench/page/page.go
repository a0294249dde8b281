// Package page makes one page of results: it needs no network, no library and no script, and fits a phone.
package page

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"strings"

	"bosh-kubernetes-cpi/test/bench/figures"
)

//go:embed page.html
var source string

// Render returns the page.
func Render(results *figures.Results) ([]byte, error) {
	parsed, err := template.New("page").Funcs(template.FuncMap{
		"number": number, "amount": amount, "list": listed, "join": strings.Join,
	}).Parse(source)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = parsed.Execute(&out, contentOf(results))
	return out.Bytes(), err
}

// content is what the page shows. What was not measured is not there.
type content struct {
	*figures.Results
	Goals   []figures.Goal
	Calls   []strips
	Scale   []lines
	Largest *figures.Size
	Shared  []sharing
	Deploys []bars
	Objects bars
	Node    *strips
	Line    *timeline
}

// sharing is what a call costs alone, and with many that share something.
type sharing struct {
	What, Method string
	Sizes        []sharedSize
}

type sharedSize struct {
	Machines int
	figures.Method
}

func contentOf(r *figures.Results) content {
	c := content{Results: r, Goals: r.Goals(), Scale: newLines(r.Scale), Shared: sharings(r.Shared), Objects: objectBars(r.Objects)}
	if len(r.Calls) > 0 {
		c.Calls = callStrips(r.Calls)
	}
	if len(r.Scale) > 0 {
		c.Largest = &r.Scale[len(r.Scale)-1]
	}
	for _, d := range r.Deploys {
		c.Deploys = append(c.Deploys, newBars(fmt.Sprintf("%d machines, %d processes at once", d.Machines, d.Workers), []measure{
			{"the CPI, until every disk is attached", "wall", number(d.Seconds) + " s", d.Seconds, 0},
			{"the same objects by a minimal client", "cpu", number(d.Bare) + " s", d.Bare, 0},
			{fmt.Sprintf("CPU time of all %d calls", d.Calls), "wall", number(d.CPU) + " s", d.CPU, 0},
		}))
	}
	if n := r.Node; n != nil {
		picture := newStrips("Calls on a real node", "ms", []row{
			{"bare Pod, until it is ready", n.BareStart}, {"create_vm, until the agent runs", n.Create},
			{"create_vm, and the image is pulled", n.Pull}, {"attach_disk", n.Attach},
			{"bare Pod, until it is gone", n.BareEnd}, {"detach_disk", n.Detach}, {"delete_vm", n.Delete},
		})
		line := newTimeline(n.Timeline)
		c.Node, c.Line = &picture, &line
	}
	return c
}

func callStrips(calls []figures.Call) []strips {
	var wall, cpu, peak []row
	for _, call := range calls {
		wall = append(wall, row{call.Name, call.Wall})
		cpu = append(cpu, row{call.Name, call.CPU})
		peak = append(peak, row{call.Name, call.Peak})
	}
	return []strips{newStrips("Wall time", "ms", wall), newStrips("CPU time", "ms", cpu), newStrips("Peak memory", "MiB", peak)}
}

// sharings puts what one method costs at each size beside each other.
func sharings(sizes []figures.Size) []sharing {
	var all []sharing
	for _, size := range sizes {
		for _, method := range size.Methods {
			at := -1
			for i := range all {
				if all[i].What == size.Name && all[i].Method == method.Name {
					at = i
				}
			}
			if at < 0 {
				all = append(all, sharing{What: size.Name, Method: method.Name})
				at = len(all) - 1
			}
			all[at].Sizes = append(all[at].Sizes, sharedSize{size.Machines, method})
		}
	}
	return all
}

// listed is a list of requests, with how often each comes.
func listed(requests []string) string {
	var names []string
	times := map[string]int{}
	for _, each := range requests {
		if times[each] == 0 {
			names = append(names, each)
		}
		times[each]++
	}
	for i, name := range names {
		if times[name] > 1 {
			names[i] = fmt.Sprintf("%s ×%d", name, times[name])
		}
	}
	return strings.Join(names, ", ")
}

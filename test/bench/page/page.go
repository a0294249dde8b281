// Package page renders results as one HTML page without external resources or scripts. The page also fits on a phone's screen.
package page

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"slices"
	"strings"

	"bosh-kubernetes-cpi/test/bench/report"
)

//go:embed page.html
var pageTemplate string

// Render returns the page.
func Render(results *report.Results) ([]byte, error) {
	parsed, err := template.New("page").Funcs(template.FuncMap{
		"number": formatNumber, "amount": formatBytes, "list": formatRequests, "join": strings.Join,
	}).Parse(pageTemplate)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = parsed.Execute(&out, newContent(results))
	return out.Bytes(), err
}

// content is the data of the page's template. Parts that were not measured are empty.
type content struct {
	*report.Results
	Goals   []report.Goal
	History []report.Earlier // oldest first, including these results
	Calls   []dotChart
	Scale   []lineChart
	Largest *report.ScaleResult
	Shared  []sharedCost
	Deploys []barChart
	Objects barChart
	Node    *dotChart
	Line    *timeline
}

// sharedCost is the cost of a call for a VM that shares an object with different numbers of VMs.
type sharedCost struct {
	Object, Method string
	Sizes          []sharedSize
}

type sharedSize struct {
	VMs int
	report.Method
}

func newContent(r *report.Results) content {
	c := content{Results: r, Goals: r.Goals(), History: append(slices.Clone(r.History), r.Summary()), Scale: newLineCharts(r.Scale), Shared: sharedCosts(r.Shared), Objects: newObjectChart(r.Objects, r.Node)}
	if len(r.Calls) > 0 {
		c.Calls = newCallCharts(r.Calls)
	}
	if len(r.Scale) > 0 {
		c.Largest = &r.Scale[len(r.Scale)-1]
	}
	for _, d := range r.Deploys {
		chart := newBarChart(fmt.Sprintf("%d VMs, %d parallel processes", d.VMs, d.Workers), []measurement{
			{"CPI, until every disk is attached", "wall", formatNumber(d.Seconds) + " s", d.Seconds, 0},
			{"minimal client with the same objects", "cpu", formatNumber(d.Bare) + " s", d.Bare, 0},
			{fmt.Sprintf("CPU time of all %d calls", d.Calls), "wall", formatNumber(d.CPU) + " s", d.CPU, 0},
		})
		chart.Conclusion = concludeDeploy(d)
		c.Deploys = append(c.Deploys, chart)
	}
	if n := r.Node; n != nil {
		chart := newDotChart("Calls on a real node", "ms", []row{
			{"start of a sleeping Pod", n.BareStart}, {"start of the init program alone", n.InitStart},
			{"minimal client: start of the same VM", n.ClientStart}, {"create_vm", n.Create}, {"create_vm with a pull of the image", n.Pull},
			{"start of a Pod with the disk's PVC", n.DiskPodStart}, {"attach_disk", n.Attach},
			{"end of a Pod with the disk's PVC", n.DiskPodEnd}, {"detach_disk", n.Detach},
			{"end of a sleeping Pod", n.BareEnd}, {"delete_vm", n.Delete},
		})
		chart.Conclusion = concludeNode(n)
		line := newTimeline(n.Timeline)
		c.Node, c.Line = &chart, &line
	}
	return c
}

func newCallCharts(calls []report.ProgramCost) []dotChart {
	var wall, cpu, peak []row
	for _, call := range calls {
		wall = append(wall, row{call.Name, call.Wall})
		cpu = append(cpu, row{call.Name, call.CPU})
		peak = append(peak, row{call.Name, call.Peak})
	}
	var charts []dotChart
	for _, chart := range []struct {
		title, unit string
		rows        []row
	}{{"Wall time", "ms", wall}, {"CPU time", "ms", cpu}, {"Peak memory", "MiB", peak}} {
		charts = append(charts, newDotChart(chart.title, chart.unit, chart.rows))
		charts[len(charts)-1].Conclusion = concludeCalls(chart.rows)
	}
	return charts
}

// sharedCosts groups the costs of each method by the number of VMs.
func sharedCosts(sizes []report.ScaleResult) []sharedCost {
	var costs []sharedCost
	for _, size := range sizes {
		for _, method := range size.Methods {
			index := slices.IndexFunc(costs, func(c sharedCost) bool { return c.Object == size.Name && c.Method == method.Name })
			if index < 0 {
				costs = append(costs, sharedCost{Object: size.Name, Method: method.Name})
				index = len(costs) - 1
			}
			costs[index].Sizes = append(costs[index].Sizes, sharedSize{size.VMs, method})
		}
	}
	return costs
}

// formatRequests returns the distinct requests, each with the number of times it occurs.
func formatRequests(requests []string) string {
	var distinct []string
	counts := map[string]int{}
	for _, request := range requests {
		if counts[request] == 0 {
			distinct = append(distinct, request)
		}
		counts[request]++
	}
	for i, request := range distinct {
		if counts[request] > 1 {
			distinct[i] = fmt.Sprintf("%s ×%d", request, counts[request])
		}
	}
	return strings.Join(distinct, ", ")
}

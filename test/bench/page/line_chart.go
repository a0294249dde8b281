package page

import (
	"fmt"
	"strings"

	"bosh-kubernetes-cpi/test/bench/report"
)

// lineChart shows the wall time and the CPU time of a method by the number of VMs. Each is a line, with a bar between the quartiles at
// each point.
type lineChart struct {
	Title      string
	Conclusion string
	Ticks      []tick // of time
	Sizes      []tick // numbers of VMs
	Series     []series
}

type series struct {
	Class  string
	Points string
	Marks  []mark
	Last   tick // label of the last value
}

type mark struct{ X, Y, Top, Bottom float64 }

const (
	linesTop    = 10.0
	linesBottom = 116.0
)

// newLineCharts returns a chart for each method that was measured with all sizes.
func newLineCharts(sizes []report.ScaleResult) []lineChart {
	if len(sizes) == 0 {
		return nil
	}
	var charts []lineChart
	for _, method := range sizes[0].Methods {
		var costs []report.Cost
		for _, size := range sizes {
			for _, m := range size.Methods {
				if m.Name == method.Name {
					costs = append(costs, m.Cost)
				}
			}
		}
		if len(costs) == len(sizes) && len(method.Wall) > 0 {
			charts = append(charts, newLineChart(method.Name, sizes, costs))
		}
	}
	return charts
}

func newLineChart(name string, sizes []report.ScaleResult, costs []report.Cost) lineChart {
	high := 0.0
	for _, cost := range costs {
		_, upper := cost.Wall.Quartiles()
		high = max(high, upper)
	}
	y := linearAxis(high, linesBottom, linesTop)
	x := axis{0, float64(max(1, len(sizes)-1)), false, 48, width - 62}
	chart := lineChart{Title: name, Conclusion: concludeScale(sizes, costs), Ticks: y.ticks()}
	for i, t := range chart.Ticks {
		chart.Ticks[i].Text = strings.TrimSuffix(formatDuration(t.Value), " ms")
	}
	wall, cpu := series{Class: "wall"}, series{Class: "cpu"}
	for i, cost := range costs {
		at := x.At(float64(i))
		chart.Sizes = append(chart.Sizes, tick{At: at, Text: fmt.Sprint(sizes[i].VMs)})
		wall.add(at, y, cost.Wall)
		cpu.add(at, y, cost.CPU)
	}
	if wall.Last.At > cpu.Last.At-13 { // avoids overlapping labels
		cpu.Last.At = wall.Last.At + 13
	}
	chart.Series = []series{wall, cpu}
	return chart
}

func (s *series) add(x float64, y axis, values report.Distribution) {
	lower, upper := values.Quartiles()
	m := mark{x, y.At(values.Median()), y.At(upper), y.At(lower)}
	s.Marks = append(s.Marks, m)
	s.Points = strings.TrimSpace(fmt.Sprintf("%s %g,%g", s.Points, m.X, m.Y))
	s.Last = tick{At: m.Y, Text: formatDuration(values.Median())}
}

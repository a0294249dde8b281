package page

import (
	"fmt"
	"strings"

	"bosh-kubernetes-cpi/test/bench/figures"
)

// lineChart shows how what a method takes changes with the number of machines: a line each for wall and CPU time, with a bar
// from quartile to quartile at each point.
type lineChart struct {
	Title  string
	Ticks  []tick // of time
	Sizes  []tick // of machines
	Series []series
}

type series struct {
	Class  string
	Points string
	Marks  []mark
	Last   tick // what the last value is
}

type mark struct{ X, Y, Top, Bottom float64 }

const (
	linesTop    = 10.0
	linesBottom = 116.0
)

// newLineCharts is a picture for each method that all sizes have.
func newLineCharts(sizes []figures.ScaleResult) []lineChart {
	if len(sizes) == 0 {
		return nil
	}
	var pictures []lineChart
	for _, method := range sizes[0].Methods {
		var costs []figures.Cost
		for _, size := range sizes {
			for _, other := range size.Methods {
				if other.Name == method.Name {
					costs = append(costs, other.Cost)
				}
			}
		}
		if len(costs) == len(sizes) && len(method.Wall) > 0 {
			pictures = append(pictures, newLineChart(method.Name, sizes, costs))
		}
	}
	return pictures
}

func newLineChart(name string, sizes []figures.ScaleResult, costs []figures.Cost) lineChart {
	high := 0.0
	for _, cost := range costs {
		_, upper := cost.Wall.Quartiles()
		high = max(high, upper)
	}
	y := linearAxis(high, linesBottom, linesTop)
	x := axis{0, float64(max(1, len(sizes)-1)), false, 48, width - 62}
	picture := lineChart{Title: name, Ticks: y.ticks()}
	for i, t := range picture.Ticks {
		picture.Ticks[i].Text = strings.TrimSuffix(formatDuration(t.Value), " ms")
	}
	wall, cpu := series{Class: "wall"}, series{Class: "cpu"}
	for i, cost := range costs {
		at := x.At(float64(i))
		picture.Sizes = append(picture.Sizes, tick{At: at, Text: fmt.Sprint(sizes[i].Machines)})
		wall.add(at, y, cost.Wall)
		cpu.add(at, y, cost.CPU)
	}
	if wall.Last.At > cpu.Last.At-13 { // two words at one place
		cpu.Last.At = wall.Last.At + 13
	}
	picture.Series = []series{wall, cpu}
	return picture
}

func (s *series) add(x float64, y axis, values figures.Distribution) {
	lower, upper := values.Quartiles()
	m := mark{x, y.At(values.Median()), y.At(upper), y.At(lower)}
	s.Marks = append(s.Marks, m)
	s.Points = strings.TrimSpace(fmt.Sprintf("%s %g,%g", s.Points, m.X, m.Y))
	s.Last = tick{At: m.Y, Text: formatDuration(values.Median())}
}

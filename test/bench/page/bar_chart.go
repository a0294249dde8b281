package page

import "bosh-kubernetes-cpi/test/bench/report"

// barChart shows amounts as horizontal bars, each optionally with a highlighted part.
type barChart struct {
	Title      string
	Conclusion string
	Height     float64
	Rows       []barRow
}

type barRow struct {
	Name, Value string
	Class       string
	Text, Y     float64
	Width, Part float64
}

// measurement is an amount with a name.
type measurement struct {
	name, class, text string
	value, part       float64
}

func newBarChart(title string, measurements []measurement) barChart {
	const rowHeight = 38.0
	high := 0.0
	for _, m := range measurements {
		high = max(high, m.value)
	}
	x := axis{0, max(high, 1e-9), false, 0, width - 2*margin}
	chart := barChart{Title: title, Height: 8 + rowHeight*float64(len(measurements))}
	for i, m := range measurements {
		y := rowHeight * float64(i)
		chart.Rows = append(chart.Rows, barRow{Name: m.name, Value: m.text, Class: m.class, Text: y + 13, Y: y + 19,
			Width: max(1, x.At(m.value)), Part: x.At(m.part)})
	}
	return chart
}

func newObjectChart(objects []report.Object, node *report.Node) barChart {
	var measurements []measurement
	for _, object := range objects {
		size := formatBytes(int64(object.Bytes))
		if object.Scripts > 0 {
			size += ", scripts " + formatBytes(int64(object.Scripts))
		}
		measurements = append(measurements, measurement{object.Name, "wall", size, float64(object.Bytes), float64(object.Scripts)})
	}
	chart := newBarChart("Bytes in etcd", measurements)
	chart.Conclusion = concludeObjects(objects, node)
	return chart
}

package page

import "bosh-kubernetes-cpi/test/bench/report"

// timeline shows events. Each has a bar that starts at the previous event.
type timeline struct {
	Conclusion string
	Height     float64
	Floor      float64
	Ticks      []tick
	Rows       []timelineRow
}

type timelineRow struct {
	What, Took       string
	Text, Y          float64
	From, To, Length float64
}

func newTimeline(moments []report.Moment) timeline {
	const rowHeight = 34.0
	chart := timeline{Floor: 6 + rowHeight*float64(len(moments))}
	chart.Height = chart.Floor + 22
	high := 0.0
	for _, m := range moments {
		high = max(high, m.At)
	}
	x := linearAxis(high, margin, width-margin)
	chart.Ticks = x.ticks()
	previous := 0.0
	for i, m := range moments {
		y := rowHeight * float64(i)
		s := timelineRow{What: m.What, Took: "+" + formatNumber(m.At-previous) + " ms", Text: y + 13, Y: y + 18, From: x.At(previous), To: x.At(m.At)}
		s.Length = max(2, s.To-s.From)
		chart.Rows = append(chart.Rows, s)
		previous = m.At
	}
	chart.Conclusion = concludeTimeline(chart.Rows)
	return chart
}

package page

import "bosh-kubernetes-cpi/test/bench/report"

// Charts are as wide as a phone's screen, so that their text is readable there. Wider windows show several charts in a row.
const (
	width  = 340.0
	margin = 14.0
)

// dotChart shows one distribution per row: a dot for each value, a bar between the quartiles, and a line at the median.
type dotChart struct {
	Title, Unit string
	Conclusion  string
	Height      float64
	Floor       float64 // position of the axis
	Ticks       []tick
	Rows        []dotRow
}

type dotRow struct {
	Name, Median       string
	Text, Y            float64
	Dots               []float64
	Lower, Upper, Mark float64
	Bar                float64 // width of the bar
}

// row is a distribution with a name.
type row struct {
	name   string
	values report.Distribution
}

func newDotChart(title, unit string, rows []row) dotChart {
	const rowHeight, top = 40.0, 8.0
	chart := dotChart{Title: title, Unit: unit, Floor: top + rowHeight*float64(len(rows))}
	chart.Height = chart.Floor + 22
	low, high := 0.0, 0.0
	for _, r := range rows {
		if minimum := r.values.Quantile(0); low == 0 || minimum < low {
			low = minimum
		}
		high = max(high, r.values.Max())
	}
	x := logarithmicAxis(low, high, margin, width-margin)
	chart.Ticks = x.ticks()
	for i, r := range rows {
		y := top + rowHeight*float64(i)
		s := dotRow{Name: r.name, Text: y + 10, Y: y + 24, Median: formatNumber(r.values.Median()) + " " + unit, Mark: x.At(r.values.Median())}
		lower, upper := r.values.Quartiles()
		s.Lower, s.Upper = x.At(lower), x.At(upper)
		s.Bar = max(1, s.Upper-s.Lower)
		for _, value := range r.values {
			s.Dots = append(s.Dots, x.At(value))
		}
		chart.Rows = append(chart.Rows, s)
	}
	return chart
}

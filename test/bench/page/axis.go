package page

import (
	"fmt"
	"math"
	"strconv"
)

// axis maps values from low to high to positions in a chart.
type axis struct {
	low, high float64
	log       bool
	from, to  float64
}

// linearAxis returns an axis from 0 to slightly above high.
func linearAxis(high, from, to float64) axis {
	if high <= 0 {
		high = 1
	}
	return axis{0, high * 1.05, false, from, to}
}

// logarithmicAxis returns an axis from slightly below low to slightly above high.
func logarithmicAxis(low, high, from, to float64) axis {
	if low <= 0 {
		low = 0.1
	}
	return axis{low / 1.15, max(high, low*2) * 1.15, true, from, to}
}

// At returns the position of the value.
func (a axis) At(value float64) float64 {
	low, high := a.low, a.high
	if a.log {
		low, high, value = math.Log(low), math.Log(high), math.Log(max(value, low))
	}
	return math.Round((a.from+(value-low)/(high-low)*(a.to-a.from))*10) / 10
}

// tick is a label of an axis.
type tick struct {
	At, Value float64
	Text      string
}

// ticks returns ticks at round values. On a linear axis, they have equal distances of 1, 2 or 5 times a power of ten. On a logarithmic
// axis, they are at 1, 2 and 5 times each power of ten.
func (a axis) ticks() []tick {
	var ticks []tick
	if a.log {
		for power := math.Pow(10, math.Floor(math.Log10(a.low))); power <= a.high; power *= 10 {
			for _, times := range []float64{1, 2, 5} {
				if value := power * times; value >= a.low && value <= a.high {
					ticks = append(ticks, tick{a.At(value), value, formatNumber(value)})
				}
			}
		}
		return ticks
	}
	step := math.Pow(10, math.Floor(math.Log10(a.high/2)))
	for _, times := range []float64{1, 2, 5} {
		if a.high/(step*times) <= 5 {
			step *= times
			break
		}
	}
	for value := 0.0; value <= a.high; value += step {
		ticks = append(ticks, tick{a.At(value), value, formatNumber(value)})
	}
	return ticks
}

// formatNumber formats a value with about two significant digits.
func formatNumber(value float64) string {
	switch {
	case value == 0:
		return "0"
	case math.Abs(value) >= 10:
		return strconv.FormatFloat(math.Round(value), 'f', -1, 64)
	case math.Abs(value) >= 1:
		return strconv.FormatFloat(math.Round(value*10)/10, 'f', -1, 64)
	}
	return strconv.FormatFloat(math.Round(value*100)/100, 'f', -1, 64)
}

// formatDuration formats a duration in milliseconds.
func formatDuration(ms float64) string {
	if ms >= 1000 {
		return formatNumber(ms/1000) + " s"
	}
	return formatNumber(ms) + " ms"
}

// formatBytes formats a number of bytes.
func formatBytes(bytes int64) string {
	switch {
	case bytes >= 1<<20:
		return formatNumber(float64(bytes)/(1<<20)) + " MiB"
	case bytes >= 10<<10:
		return formatNumber(float64(bytes)/(1<<10)) + " KiB"
	}
	return fmt.Sprint(bytes, " B")
}

package figures

import (
	"math"
	"slices"
)

// Distribution is what was measured several times, in the order in which it was.
type Distribution []float64

// Quantile returns the value below which this part of the values lies, between two of them by how near they are; 0 when there
// are none.
func (d Distribution) Quantile(part float64) float64 {
	if len(d) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(d))
	at := part * float64(len(sorted)-1)
	below := int(math.Floor(at))
	above := min(below+1, len(sorted)-1)
	return sorted[below] + (at-float64(below))*(sorted[above]-sorted[below])
}

// Median is the value in the middle.
func (d Distribution) Median() float64 { return d.Quantile(0.5) }

// Quartiles are the values below which a quarter, and three quarters, lie.
func (d Distribution) Quartiles() (lower, upper float64) { return d.Quantile(0.25), d.Quantile(0.75) }

// Max is the largest value.
func (d Distribution) Max() float64 { return d.Quantile(1) }

// Add appends a value, rounded to what a reader can use: three decimals.
func (d *Distribution) Add(value float64) { *d = append(*d, math.Round(value*1000)/1000) }

// Cost is what a program took, run after run.
type Cost struct {
	// Wall and CPU are in milliseconds, CPU is that of user and system together.
	Wall Distribution `json:"wall_ms"`
	CPU  Distribution `json:"cpu_ms"`
	// Peak is the most memory that the process had, in MiB.
	Peak Distribution `json:"peak_mib"`
}

// Add notes one more run.
func (c *Cost) Add(usage Usage) {
	c.Wall.Add(float64(usage.Wall) / 1e6)
	c.CPU.Add(float64(usage.CPU) / 1e6)
	c.Peak.Add(float64(usage.Peak) / 1024)
}

// Usage is what one process took, as the launcher reports it.
type Usage struct {
	Wall int64 `json:"wall_ns"`
	CPU  int64 `json:"cpu_ns"`
	Peak int64 `json:"peak_kib"`
}

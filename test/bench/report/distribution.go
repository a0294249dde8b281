package report

import (
	"math"
	"slices"
)

// Distribution contains repeated measurements, in the order in which they were taken.
type Distribution []float64

// Quantile returns the value below which this fraction of the values lies, with linear interpolation. It returns 0 for an empty
// distribution.
func (d Distribution) Quantile(fraction float64) float64 {
	if len(d) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(d))
	index := fraction * float64(len(sorted)-1)
	below := int(math.Floor(index))
	above := min(below+1, len(sorted)-1)
	return sorted[below] + (index-float64(below))*(sorted[above]-sorted[below])
}

// Median returns the median.
func (d Distribution) Median() float64 { return d.Quantile(0.5) }

// Quartiles returns the first and the third quartile.
func (d Distribution) Quartiles() (lower, upper float64) { return d.Quantile(0.25), d.Quantile(0.75) }

// Add appends a value, rounded to three decimals.
func (d *Distribution) Add(value float64) { *d = append(*d, math.Round(value*1000)/1000) }

// Cost is the usage of a program in repeated runs.
type Cost struct {
	// Wall and CPU are in milliseconds. CPU is the sum of user and system time.
	Wall Distribution `json:"wall_ms"`
	CPU  Distribution `json:"cpu_ms"`
	// Peak is the peak memory of the process, in MiB.
	Peak Distribution `json:"peak_mib"`
}

// Add adds a run.
func (c *Cost) Add(usage Usage) {
	c.Wall.Add(float64(usage.Wall) / 1e6)
	c.CPU.Add(float64(usage.CPU) / 1e6)
	c.Peak.Add(float64(usage.Peak) / 1024)
}

// Usage is the usage of a process, as reported by the launcher.
type Usage struct {
	Wall int64 `json:"wall_ns"`
	CPU  int64 `json:"cpu_ns"`
	Peak int64 `json:"peak_kib"`
}

// Package figures holds what the benchmarks have measured: distributions, the results of a run, and the comparison of two.
// It measures nothing itself.
package figures

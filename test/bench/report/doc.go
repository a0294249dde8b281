// Package report contains the data of benchmarks: distributions, the results of a run, and the comparison of two runs.
package report

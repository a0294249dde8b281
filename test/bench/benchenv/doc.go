// Package benchenv is what benchmarks run on: a real control plane with simulated nodes, the CPI's program, and a launcher that
// tells what a process took.
package benchenv

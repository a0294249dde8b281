// Package benchenv provides the environment of benchmarks: a real control plane with simulated nodes, the CPI's program, and a launcher
// that measures the usage of a process.
package benchenv

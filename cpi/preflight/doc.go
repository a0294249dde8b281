// Package preflight looks at a cluster before anything is made in it: whether the CPI can work there, with its own
// configuration and rights, and what to do where it cannot.
//
// It is above package cpi, whose configuration it reads, and makes what it tries with the CPI's own builders. Nothing that
// it tries is stored. There is a file for each family of checks; checks.go has them all.
package preflight

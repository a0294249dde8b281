// Package instances lists BOSH instances in a namespace, with their Pods, disks and Services. It reads names and relations from labels
// and annotations written by the CPI.
package instances

// Package instances lists BOSH instances in a namespace, with their Pods, disks and Services. It reads names and relations from labels
// and annotations that the CPI has written.
package instances

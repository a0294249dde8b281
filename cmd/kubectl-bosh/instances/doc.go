// Package instances is what BOSH has in a namespace: its machines by BOSH's names, with their Pods, disks and Services.
// All of it is read from labels and annotations that the CPI writes.
package instances

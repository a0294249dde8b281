//go:build e2e

// Package e2e tests the CPI on a real node: kubelet, containerd, Calico, the BOSH agent, monit and the
// BOSH CLI. scripts/e2e prepares what it needs and runs it as root.
//
// Specs run in four processes at once on one node: they mostly wait. A spec that does something to the node as a whole,
// or looks at all that is on it, is Serial.
package e2e

import (
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestE2E(t *testing.T) {
	RegisterFailHandler(Fail)
	setEventuallyDefaults(onVMNode)
	RunSpecs(t, "e2e")
}

// setEventuallyDefaults says how long a test waits for something by default, and how often it looks: on a slow node longer.
func setEventuallyDefaults(slow bool) {
	if slow {
		SetDefaultEventuallyTimeout(10 * time.Minute)
		SetDefaultEventuallyPollingInterval(time.Second)
		return
	}
	SetDefaultEventuallyTimeout(2 * time.Minute)
	SetDefaultEventuallyPollingInterval(100 * time.Millisecond)
}

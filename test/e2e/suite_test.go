//go:build e2e

// Package e2e tests the CPI on a real node: kubelet, containerd, Calico, the BOSH agent, monit and the BOSH CLI. scripts/e2e
// prepares the cluster and runs the tests as root.
//
// Four processes run specs in parallel on one node, because specs mostly wait. Specs that change or inspect the whole node are
// Serial.
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

// setEventuallyDefaults sets the default timeout and polling interval of Eventually. Both are longer for a slow node.
func setEventuallyDefaults(slow bool) {
	if slow {
		SetDefaultEventuallyTimeout(10 * time.Minute)
		SetDefaultEventuallyPollingInterval(time.Second)
		return
	}
	SetDefaultEventuallyTimeout(2 * time.Minute)
	SetDefaultEventuallyPollingInterval(100 * time.Millisecond)
}

//go:build e2e

package e2e

import (
	"context"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// volumeLoopDevices returns the loop devices of the node's volumes.
func (env *testEnv) volumeLoopDevices(ctx context.Context) []string {
	GinkgoHelper()
	loops, err := env.node.LoopDevices(ctx)
	Expect(err).NotTo(HaveOccurred())
	return loops
}

// runConcurrently runs the actions at the same time, and waits for them.
func runConcurrently(actions ...func()) {
	var group sync.WaitGroup
	for _, act := range actions {
		group.Go(func() {
			defer GinkgoRecover()
			act()
		})
	}
	group.Wait()
}

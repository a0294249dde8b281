//go:build e2e

package e2e

import (
	"context"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// devices are the loop devices of the node's volumes.
func (w *world) devices(ctx context.Context) []string {
	GinkgoHelper()
	loops, err := w.node.Loops(ctx)
	Expect(err).NotTo(HaveOccurred())
	return loops
}

// atOnce does all of it at the same time.
func atOnce(actions ...func()) {
	var all sync.WaitGroup
	for _, act := range actions {
		all.Go(func() {
			defer GinkgoRecover()
			act()
		})
	}
	all.Wait()
}

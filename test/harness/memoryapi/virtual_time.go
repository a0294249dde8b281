package memoryapi

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/onsi/ginkgo/v2"
)

// InVirtualTime runs a part of a spec in virtual time, see [synctest.Test]: when all its goroutines wait, the next timeout ends at once.
// Contexts and clients that the part uses must be created in it.
func InVirtualTime(t *testing.T, part func()) {
	synctest.Test(t, func(*testing.T) {
		defer ginkgo.GinkgoRecover()
		defer func() { <-time.After(24 * time.Hour) }() // all contexts are done then: nothing outside of the bubble may cancel them
		part()
	})
}

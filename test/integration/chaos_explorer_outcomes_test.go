package integration

import (
	"context"
	"fmt"
	"net/http"

	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/test/harness/director"
)

// soloErrorTypes are the error types of first calls that run alone, by setup and call; "" means success.
var soloErrorTypes = map[string]string{}

// recordSoloOutcome runs the first call alone, and records its error type. If it fails, it must not change the owner of the disk.
func (env *explorerTestEnv) recordSoloOutcome(ctx context.Context, x interleaving) {
	key := x.setup.name + ": " + x.first.name
	if _, known := soloErrorTypes[key]; known || !x.second.independent {
		return
	}
	env.resetVMs(ctx)
	x.setup.prepare(ctx, env)
	previous := env.currentState(ctx)
	env.directors[0].proxy.Reset(env.firstCallFault(ctx, x.setup, func(_ int, w http.ResponseWriter, r *http.Request, next http.Handler) { next.ServeHTTP(w, r) }))
	response := <-env.startExplorerCall(ctx, env.firstDirector(x.setup), x.first)
	env.directors[0].proxy.Reset(nil)
	soloErrorTypes[key] = errorType(response)
	if response.Error != nil {
		now := env.currentState(ctx)
		Expect(now.owner(env.disk)).To(Equal(previous.owner(env.disk)), "%s failed alone: %v\n%s", x.first.name, response.Error, env.describe(now))
	}
	Expect(env.cleanup(ctx)).To(BeEmpty())
}

// errorType returns the type of the response's error, or "".
func errorType(response director.Response) string {
	if response.Error == nil {
		return ""
	}
	return response.Error.Type
}

// expectSoloOutcome expects that the first call returns the same error type as alone, although an independent call ran at the same time. If
// the first call failed, it must not change the owner of the disk. But if the second call repairs attachments and runs while the first one
// rolls back, the VM can keep the disk, with a new attachment.
func (env *explorerTestEnv) expectSoloOutcome(x interleaving, previous, now namespaceState, response director.Response) {
	if x.setup.lost && x.second.repairsAttachments && response.Error == nil {
		return // with the attachment Pod of the second call, which starts in time
	}
	Expect(errorType(response)).To(Equal(soloErrorTypes[x.setup.name+": "+x.first.name]), "%s at the same time as %s: %v", x.first.name, x.second.name, response.Error)
	if response.Error == nil {
		return
	}
	owners := []string{previous.owner(env.disk)}
	if x.second.repairsAttachments {
		owners = append(owners, vmOne)
	}
	Expect(owners).To(ContainElement(now.owner(env.disk)), "%s failed: %v\n%s", x.first.name, response.Error, env.describe(now))
}

// expectStillConsistent fails if the first call returned an error, but undid what the second one returned. What get_disks returned needs
// to be true only at one moment of that call.
func (env *explorerTestEnv) expectStillConsistent(x interleaving, reached bool, first, second director.Response, now namespaceState) {
	if !reached || first.Error == nil || x.third != nil || x.second.reportsOwner {
		return
	}
	Expect(x.second.check(env, now, second)).To(BeEmpty(), func() string {
		return fmt.Sprintf("%s failed, but undid the result of %s: %v\n%s", x.first.name, x.second.name, first.Error, env.describe(now))
	})
}

// expectNoInternalError fails if the process failed, or sent a request without a precondition.
func expectNoInternalError(call explorerCall, response director.Response) {
	if response.Error != nil {
		Expect(response.Error.Type).To(HavePrefix("Bosh::Clouds::"), "%s: %s", call.name, response.Stderr)
		Expect(response.Error.Message).NotTo(ContainSubstring("[request-denied]"), "%s sent a request without a precondition", call.name)
	}
}

// expectConsistentOnce fails if the response contradicts all states observed between the request and the response.
func (env *explorerTestEnv) expectConsistentOnce(call explorerCall, states []namespaceState, response director.Response, now namespaceState) {
	var reason string
	for _, state := range states {
		if reason = call.check(env, state, response); reason == "" {
			return
		}
	}
	Expect(reason).To(BeEmpty(), func() string {
		return fmt.Sprintf("%s returned %s\n%s", call.name, response.Result, env.describe(now))
	})
}

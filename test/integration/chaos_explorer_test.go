package integration

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/test/chaos"
	"bosh-kubernetes-cpi/test/harness/apiproxy"
	"bosh-kubernetes-cpi/test/harness/director"
)

// The interleaving explorer runs two concurrent calls with the same subjects, in each order that matters. The first call is held before each
// of its requests, which is also after the one before it, and after each request that changes something, which then has no response. The
// second call runs meanwhile, and a cluster event may follow. Then the first call continues. Both calls are retried once, and the inverse
// calls delete the created objects. The explorer checks the state after each step.

// Without CASES, a run tries one in interleavingParts interleavings. Runs with consecutive seeds together try all.
const interleavingParts = 500

// heldCallTimeout limits the time for which the first call is held while the second one runs.
const heldCallTimeout = 4 * time.Second

// clusterEvent is a change by another client while the first call is held, after the second one returned.
type clusterEvent struct {
	name   string
	apply  func(ctx context.Context, env *explorerTestEnv)
	revert func(ctx context.Context, env *explorerTestEnv) // after both calls were retried; can be nil
}

func clusterEvents() []clusterEvent {
	return []clusterEvent{
		{name: "the attachment Pod is deleted", apply: func(ctx context.Context, env *explorerTestEnv) { env.deletePod(ctx, env.disk+"-attachment") }},
		{name: "the VM Pod is deleted", apply: func(ctx context.Context, env *explorerTestEnv) { env.deletePod(ctx, vmOne) }},
		{name: "the PVC of the disk is deleted", apply: func(ctx context.Context, env *explorerTestEnv) {
			env.diskDeleted = true
			_ = cluster.CoreV1().PersistentVolumeClaims(env.namespace).Delete(ctx, env.disk, metav1.DeleteOptions{})
		}},
		{name: "the node of the VM is lost", apply: func(ctx context.Context, env *explorerTestEnv) { env.markNodeUnreachable(ctx, env.node) },
			revert: func(ctx context.Context, env *explorerTestEnv) { env.markNodeReachable(ctx, env.node) }},
		{name: "the API server restarts", apply: func(ctx context.Context, env *explorerTestEnv) { env.refuseConnections(ctx) }},
	}
}

// refuseConnections simulates a restart of the API server for the first call. It breaks the call's connections, including the connection of
// the held request, and refuses the next one, unless the call returns before that. The API server cannot really restart, because other
// specs use it, too.
func (env *explorerTestEnv) refuseConnections(ctx context.Context) {
	proxy := env.directors[0].proxy
	proxy.BreakConnections()
	Eventually(func() bool { return len(proxy.Requests()) > 0 || len(env.firstResponse) > 0 }).WithContext(ctx).
		WithPolling(10 * time.Millisecond).Should(BeTrue())
	proxy.Reset(nil)
}

// deletePod deletes a Pod as another client would, and waits until it is deleted.
func (env *explorerTestEnv) deletePod(ctx context.Context, name string) {
	if cluster.CoreV1().Pods(env.namespace).Delete(ctx, name, metav1.DeleteOptions{}) == nil {
		Eventually(func() any { return env.currentState(ctx).pods[name] }).WithContext(ctx).
			WithPolling(20 * time.Millisecond).Should(BeNil())
	}
}

// interleaving is one order of the requests of two concurrent calls.
type interleaving struct {
	setup         explorerSetup
	first, second explorerCall
	firstHeldAt   int // the number of the request at which the first call is held
	hold          apiproxy.HoldPoint
	event         clusterEvent
	// third is a third call, or nil. It runs while the second call is held before its request secondHeldAt.
	third        *explorerCall
	secondHeldAt int
}

func (x interleaving) String() string {
	name := fmt.Sprintf("%s: %s, held at request %d (%s), crossed by %s", x.setup.name, x.first.name, x.firstHeldAt, x.hold, x.second.name)
	if x.third != nil {
		name += fmt.Sprintf(", held at request %d, crossed by %s", x.secondHeldAt, x.third.name)
	}
	if x.event.name != "" {
		name += ", then " + x.event.name
	}
	return name
}

func (x interleaving) selected() bool { return chaos.IsSelected(x.String(), interleavingParts) }

var _ = Describe("Two calls at the same time", long, Label("faults", "interleavings"), func() {
	for _, setup := range explorerSetups() {
		if chaos.Pattern == "" {
			It("leave one owner per disk, starting with "+setup.name, func(ctx context.Context) {
				explore(ctx, setup, setup.firstCalls, setup.crossingCalls())
			}, NodeTimeout(time.Hour))
			continue
		}
		for _, first := range setup.firstCalls {
			for _, second := range setup.crossingCalls() {
				It("leave one owner per disk, starting with "+setup.name+", holding "+first.name+", crossed by "+second.name, func(ctx context.Context) {
					explore(ctx, setup, []explorerCall{first}, []explorerCall{second})
				}, NodeTimeout(time.Hour))
			}
		}
	}
})

const explorerReportEntry = "interleavings"

// explore tries the interleavings of each first call with each second call.
func explore(ctx context.Context, setup explorerSetup, firstCalls, secondCalls []explorerCall) {
	var env *explorerTestEnv
	done := func() {}
	defer func() { done() }() //nolint:gocritic // done is reassigned
	var pairs []chaos.Cases
	for _, first := range firstCalls {
		for _, second := range secondCalls {
			pair := chaos.Cases{Group: fmt.Sprintf("%s: %s and %s", setup.name, first.name, second.name)}
			try := func(x interleaving) heldRequest {
				if env == nil {
					env, done = newExplorerTestEnv(ctx, 3)
				}
				held := changingRequest // if the interleaving fails
				if _, passed := pair.Try(x, func() bool {
					held = env.runInterleaving(ctx, x)
					return held != noRequest
				}); !passed {
					done()
					env, done = nil, func() {}
				}
				return held
			}
			explorePair(setup, first, second, try)
			exploreTriples(setup, first, second, try)
			pairs = append(pairs, pair)
		}
	}
	chaos.AddToReport(explorerReportEntry, pairs...)
}

// maxRequests is larger than the number of requests of any call.
const maxRequests = 60

// heldRequest is the kind of the request at which the first call was held.
type heldRequest string

const (
	noRequest       heldRequest = "none" // the call returned before
	readingRequest  heldRequest = "reads"
	changingRequest heldRequest = "changes"
)

// kindOf returns the kind of a request at which a call is held.
func kindOf(r *http.Request) heldRequest {
	if r.Method == http.MethodGet {
		return readingRequest
	}
	return changingRequest
}

// explorePair tries a pair with the first call held at its first request, its second, and so on, until the call returns before that.
func explorePair(setup explorerSetup, first, second explorerCall, try func(interleaving) heldRequest) {
	events := clusterEvents()
	for n := 1; n <= maxRequests; n++ {
		newInterleaving := func(hold apiproxy.HoldPoint, event clusterEvent) interleaving {
			return interleaving{setup: setup, first: first, second: second, firstHeldAt: n, hold: hold, event: event}
		}
		interleavings := []interleaving{newInterleaving(apiproxy.HeldBefore, clusterEvent{})}
		// A call that runs out of time must also undo what it created with a lost response, even if no other call is in the way.
		if !second.independent || setup.slow {
			interleavings = append(interleavings, newInterleaving(apiproxy.ResponseLost, clusterEvent{}))
		}
		interleavings = append(interleavings, newInterleaving(apiproxy.HeldBefore, events[n%len(events)]))
		held := changingRequest // as far as is known
		for _, x := range interleavings {
			if !x.selected() || x.hold == apiproxy.ResponseLost && held == readingRequest {
				continue
			}
			if held = try(x); held == noRequest {
				return
			}
		}
		if chaos.Pattern == "" && n >= 12 {
			return // counting the requests of the first call would cost an environment and a call
		}
	}
}

// exploreTriples tries a pair with each third call. The first and the second call are held at random requests.
func exploreTriples(setup explorerSetup, first, second explorerCall, try func(interleaving) heldRequest) {
	if !slices.ContainsFunc(setup.tripleCalls, first.equals) || !slices.ContainsFunc(setup.tripleCalls, second.equals) {
		return
	}
	for _, third := range setup.tripleCalls {
		for drawn := range drawsPerTriple {
			name := fnv.New64a()
			_, _ = fmt.Fprint(name, setup.name, first.name, second.name, third.name, drawn)
			chance := chaos.NewRandom(name.Sum64(), 0)
			x := interleaving{setup: setup, first: first, second: second, third: &third, hold: apiproxy.HeldBefore,
				firstHeldAt: 1 + chance.IntN(maxHeldRequest), secondHeldAt: 1 + chance.IntN(maxHeldRequest)}
			if x.selected() {
				try(x)
			}
		}
	}
}

// Each triple is tried drawsPerTriple times. The first and the second call are held at one of their first maxHeldRequest requests.
const (
	drawsPerTriple = 3
	maxHeldRequest = 6
)

// nthRequest matches the nth request of a call, not counting requests for Events and nodes.
func nthRequest(n int) func(int, *http.Request) bool {
	var count atomic.Int64
	return func(_ int, r *http.Request) bool {
		return !strings.HasSuffix(r.URL.Path, "/events") && !strings.HasSuffix(r.URL.Path, "/nodes") && count.Add(1) == int64(n)
	}
}

// runInterleaving tries one interleaving.
func (env *explorerTestEnv) runInterleaving(ctx context.Context, x interleaving) heldRequest {
	env.recordSoloOutcome(ctx, x)
	env.resetVMs(ctx)
	x.setup.prepare(ctx, env)
	states := []namespaceState{env.currentState(ctx)}
	step := func(name string) namespaceState {
		now := env.currentState(ctx)
		states = append(states, now)
		Expect(env.invariantViolations(now)).To(BeEmpty(), func() string { return name + "\n" + env.describe(now) })
		return now
	}

	gate := apiproxy.NewGate()
	defer gate.Open()
	held, matches := noRequest, nthRequest(x.firstHeldAt)
	first := env.startFirstCall(ctx, x, gate.Hold(x.hold, func(n int, r *http.Request) bool {
		matched := matches(n, r)
		if matched {
			held = kindOf(r)
		}
		return matched
	}))
	defer env.directors[0].proxy.Reset(nil)
	reached := false
	select {
	case <-gate.Reached:
		reached = true
		step("while " + x.first.name + " is held")
	case response := <-first:
		first <- response
	}

	undisturbed := x.event.name == "" // except by both calls
	var second director.Response
	if reached {
		var returned bool
		second, returned = env.runSecondCall(ctx, x, gate.Open, step)
		undisturbed = returned && undisturbed
	}
	response := <-first
	expectNoInternalError(x.first, response)
	now := step("after " + x.first.name)
	if undisturbed {
		env.expectConsistentOnce(x.first, states, response, now)
		env.expectStillConsistent(x, reached, response, second, now)
		Eventually(func() []string { return env.consistencyErrors(env.currentState(ctx), x.setup.lost) }).WithContext(ctx).
			WithPolling(100*time.Millisecond).Should(BeEmpty(), func() string { return "after both calls returned\n" + env.describe(env.currentState(ctx)) })
		if x.second.independent && reached {
			env.expectSoloOutcome(x, states[0], now, response)
		}
	}
	if reached {
		env.retryCalls(ctx, x, step)
	}
	if x.event.revert != nil {
		x.event.revert(ctx, env)
	}
	if remaining := env.cleanup(ctx); len(remaining) > 0 {
		now := env.currentState(ctx)
		Expect(remaining).To(BeEmpty(), func() string { return "remaining after the cleanup\n" + env.describe(now) })
	}
	return held
}

// startFirstCall starts the first call, and closes firstReturned when it has returned.
func (env *explorerTestEnv) startFirstCall(ctx context.Context, x interleaving, fault apiproxy.Fault) chan director.Response {
	env.directors[0].proxy.Reset(env.firstCallFault(ctx, x.setup, fault))
	first, returned := make(chan director.Response, 1), make(chan struct{})
	env.firstResponse, env.firstReturned = first, returned
	running := env.startExplorerCall(ctx, env.firstDirector(x.setup), x.first)
	go func() {
		response := <-running
		env.firstReturnedAt = time.Now()
		first <- response
		close(returned)
	}()
	return first
}

// runSecondCall runs the second call and applies the cluster event while the first call is held. Then it releases the first call.
// returned is false if the first call was released before the second one returned.
func (env *explorerTestEnv) runSecondCall(ctx context.Context, x interleaving, release func(), step func(string) namespaceState) (
	response director.Response, returned bool) {

	env.directors[1].proxy.Reset(env.secondCallFault(ctx, x.setup))
	second, states := env.startSecondCall(ctx, x)
	returned = true
	select {
	case response = <-second:
	case <-time.After(heldCallTimeout):
		returned = false
		release()
		response = <-second
	}
	expectNoInternalError(x.second, response)
	now := step("after " + x.second.name)
	if returned && x.event.name == "" {
		env.expectConsistentOnce(x.second, append(states, now), response, now)
	}
	if x.setup.slow && x.second.equals(x.first) && x.event.name == "" {
		Expect(response.Error).To(BeNil(), func() string { return "the retry failed because the first call timed out\n" + env.describe(now) })
	}
	if x.event.name != "" {
		x.event.apply(ctx, env)
		step("after " + x.event.name)
	}
	release()
	return response, returned
}

// retryCalls retries both calls once.
func (env *explorerTestEnv) retryCalls(ctx context.Context, x interleaving, step func(string) namespaceState) {
	for _, call := range []explorerCall{x.first, x.second} {
		env.directors[1].proxy.Reset(env.secondCallFault(ctx, x.setup))
		response := <-env.startExplorerCall(ctx, env.directors[1].Director, call)
		expectNoInternalError(call, response)
		step("after the retry of " + call.name)
	}
}

// startSecondCall starts the second call. If there is a third call, it runs while the second one is held, and startSecondCall returns the
// states before and after it.
func (env *explorerTestEnv) startSecondCall(ctx context.Context, x interleaving) (second chan director.Response, states []namespaceState) {
	if x.third == nil {
		return env.startExplorerCall(ctx, env.directors[1].Director, x.second), nil
	}
	gate := apiproxy.NewGate()
	defer gate.Open()
	env.directors[1].proxy.Reset(gate.Hold(apiproxy.HeldBefore, nthRequest(x.secondHeldAt)))
	second = env.startExplorerCall(ctx, env.directors[1].Director, x.second)
	select {
	case <-gate.Reached:
	case response := <-second:
		second <- response
	}
	states = append(states, env.currentState(ctx))
	third := env.startExplorerCall(ctx, env.directors[2].Director, *x.third)
	select {
	case response := <-third:
		expectNoInternalError(*x.third, response)
	case <-time.After(heldCallTimeout):
	}
	return second, append(states, env.currentState(ctx))
}

// firstDirector returns the director of the first call, with short timeouts in a slow setup.
func (env *explorerTestEnv) firstDirector(setup explorerSetup) *director.Director {
	if !setup.slow {
		return env.directors[0].Director
	}
	firstEnv := env.testEnv
	firstEnv.Director = env.directors[0].Director
	timeouts := maps.Clone(explorerTimeouts)
	timeouts["attach_disk"] = "1500ms"
	return firstEnv.directorWithTimeouts(timeouts)
}

const holdAnnotation = "test/hold"

// firstCallFault adds the annotations and the hook of the setup to the fault of the first call.
func (env *explorerTestEnv) firstCallFault(ctx context.Context, setup explorerSetup, fault apiproxy.Fault) apiproxy.Fault {
	return func(n int, w http.ResponseWriter, r *http.Request, next http.Handler) {
		annotations := map[string]string{"test/reboots": "yes"}
		if setup.slow {
			annotations[holdAnnotation] = "yes"
		}
		annotateNewPod(r, annotations)
		if setup.onWatch != nil && r.URL.Query().Get("watch") != "" {
			setup.onWatch(ctx, env)
		}
		fault(n, w, r, next)
	}
}

// secondCallFault lets the Pod of the first call start in a slow setup, when the first call has run out of time and the second one waits for
// that Pod.
func (env *explorerTestEnv) secondCallFault(ctx context.Context, setup explorerSetup) apiproxy.Fault {
	firstReturned, pod := env.firstReturned, env.disk+"-attachment"
	return func(_ int, w http.ResponseWriter, r *http.Request, next http.Handler) {
		if setup.slow && r.URL.Query().Get("watch") != "" && strings.HasSuffix(r.URL.Path, "/pods") {
			go func() {
				select {
				case <-firstReturned:
				case <-time.After(heldCallTimeout / 2): // the first call is held
				}
				_ = env.annotatePod(ctx, pod, holdAnnotation, nil)
			}()
		}
		next.ServeHTTP(w, r)
	}
}

// startExplorerCall starts a call, and sends its response to the returned channel.
func (env *explorerTestEnv) startExplorerCall(ctx context.Context, d *director.Director, call explorerCall) chan director.Response {
	arguments := call.call(env)
	env.diskDeleted = env.diskDeleted || call.deletesDisk
	method, _ := arguments[0].(string)
	responses := make(chan director.Response, 1)
	go func() {
		if call.run != nil {
			responses <- call.run(ctx, env)
			return
		}
		response, err := d.Call(ctx, method, arguments[1:]...)
		if err != nil {
			response.Error = &director.Error{Type: "the process", Message: err.Error()}
		}
		responses <- response
	}()
	return responses
}

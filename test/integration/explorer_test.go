package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/test/apiproxy"
	"bosh-kubernetes-cpi/test/director"
)

// The interleaving explorer runs two calls with the same subjects at the same time, in each order that matters: call A is held at each
// of its requests, before or after the API server handles it; call B runs meanwhile; a cluster event may follow; then A continues. Both
// calls are repeated once, and the inverse calls delete what they created. The explorer checks the state after each step.

// explorePattern is "all", or a regular expression for the names of interleavings. If it is empty, the seed selects some of them.
var explorePattern = envOr("EXPLORE", "")

// interleavingParts is the number of runs without EXPLORE, with consecutive seeds, that together try all interleavings.
const interleavingParts = 500

// heldCallTimeout is how long B may run while A is held. After that, A continues.
const heldCallTimeout = 4 * time.Second

// holdPoint says when A is held at a request: relative to its handling by the API server.
type holdPoint string

const (
	heldBefore      holdPoint = "before"
	responseDelayed holdPoint = "after, with a delayed response"
	responseLost    holdPoint = "after, with a lost response"
)

// clusterEvent is something that someone else does while A is held, after B has returned.
type clusterEvent struct {
	name   string
	apply  func(ctx context.Context, env *explorerTestEnv)
	revert func(ctx context.Context, env *explorerTestEnv) // after both calls were repeated; can be nil
}

func clusterEvents() []clusterEvent {
	return []clusterEvent{
		{name: "the attachment Pod is deleted", apply: func(ctx context.Context, env *explorerTestEnv) { env.deletePod(ctx, env.disk+"-attachment") }},
		{name: "the VM Pod is deleted", apply: func(ctx context.Context, env *explorerTestEnv) { env.deletePod(ctx, vmOne) }},
		{name: "the PVC of the disk is deleted", apply: func(ctx context.Context, env *explorerTestEnv) {
			env.requiredDisks, env.diskDeleted = nil, true
			_ = cluster.CoreV1().PersistentVolumeClaims(env.namespace).Delete(ctx, env.disk, metav1.DeleteOptions{})
		}},
		{name: "the node of the VM is lost", apply: func(ctx context.Context, env *explorerTestEnv) { env.markNodeUnreachable(ctx, env.node) },
			revert: func(ctx context.Context, env *explorerTestEnv) { env.markNodeReachable(ctx, env.node) }},
		{name: "the API server restarts", apply: func(ctx context.Context, env *explorerTestEnv) { env.refuseConnections(ctx) }},
	}
}

// refuseConnections does to the first call what a restart of the API server does: it breaks its connections, including the connection of
// the held request, and refuses the next one, unless the call returns before that. Other specs use the API server too, so it cannot
// really restart.
func (env *explorerTestEnv) refuseConnections(ctx context.Context) {
	proxy := env.directors[0].proxy
	proxy.BreakConnections()
	Eventually(func() bool { return len(proxy.Requests()) > 0 || len(env.firstResponse) > 0 }).WithContext(ctx).WithTimeout(10 * time.Second).
		WithPolling(10 * time.Millisecond).Should(BeTrue())
	proxy.Reset(nil)
}

// deletePod deletes a Pod as someone else would, and waits until it is deleted.
func (env *explorerTestEnv) deletePod(ctx context.Context, name string) {
	if cluster.CoreV1().Pods(env.namespace).Delete(ctx, name, metav1.DeleteOptions{}) == nil {
		Eventually(func() any { return env.currentState(ctx).pods[name] }).WithContext(ctx).WithTimeout(10 * time.Second).
			WithPolling(20 * time.Millisecond).Should(BeNil())
	}
}

// interleaving is one way to run two calls at the same time.
type interleaving struct {
	setup explorerSetup
	a, b  explorerCall
	n     int // A is held at its nth request
	hold  holdPoint
	event clusterEvent
	// c is a third call, or nil. It runs while B is held before its request m.
	c *explorerCall
	m int
}

func (x interleaving) String() string {
	text := fmt.Sprintf("%s: %s, held at request %d (%s), crossed by %s", x.setup.name, x.a.name, x.n, x.hold, x.b.name)
	if x.c != nil {
		text += fmt.Sprintf(", held at request %d, crossed by %s", x.m, x.c.name)
	}
	if x.event.name != "" {
		text += ", then " + x.event.name
	}
	return text
}

func (x interleaving) selected() bool {
	switch explorePattern {
	case "":
		return drawnBySeed(x.String(), interleavingParts)
	case "all":
		return true
	}
	return regexp.MustCompile(explorePattern).MatchString(x.String())
}

var _ = Describe("Two calls at the same time", Label("faults"), func() {
	for _, setup := range explorerSetups() {
		if explorePattern == "" {
			It("leave one owner per disk, starting with "+setup.name, func(ctx context.Context) {
				explore(ctx, setup, setup.firstCalls)
			}, NodeTimeout(time.Hour))
			continue
		}
		for _, a := range setup.firstCalls {
			It("leave one owner per disk, starting with "+setup.name+", holding "+a.name, func(ctx context.Context) {
				explore(ctx, setup, []explorerCall{a})
			}, NodeTimeout(3*time.Hour))
		}
	}
})

// explorerResult has the numbers of a spec and its failed interleavings.
type explorerResult struct {
	Pairs, Interleavings, Passed int
	Failed                       []string
}

const explorerReportEntry = "interleavings"

// explore tries the interleavings of these first calls with all second calls of the setup.
func explore(ctx context.Context, setup explorerSetup, first []explorerCall) {
	var result explorerResult
	var env *explorerTestEnv
	done := func() {}
	defer func() { done() }() //nolint:gocritic // done is reassigned
	try := func(x interleaving) (short bool) {
		if env == nil {
			env, done = newExplorerTestEnv(ctx, 3)
		}
		started := time.Now()
		var reached bool
		failure := InterceptGomegaFailure(func() { reached = env.runInterleaving(ctx, x) })
		fmt.Fprintf(GinkgoWriter, "%6.1fs %s\n", time.Since(started).Seconds(), x)
		if failure != nil {
			fmt.Fprintf(GinkgoWriter, "violation: %s\n%v\n", x, failure)
			result.Failed = append(result.Failed, fmt.Sprintf("%s:\n%v", x, failure))
			done()
			env, done = nil, func() {}
		}
		if reached || failure != nil {
			result.Interleavings++
		}
		if reached && failure == nil {
			result.Passed++
		}
		return !reached && failure == nil
	}
	for _, a := range first {
		for _, b := range setup.crossingCalls() {
			tried := result.Interleavings
			explorePair(setup, a, b, try)
			exploreTriples(setup, a, b, try)
			if result.Interleavings > tried {
				result.Pairs++
			}
		}
	}
	AddReportEntry(explorerReportEntry, result, ReportEntryVisibilityNever)
	if len(result.Failed) > 0 {
		Fail(strings.Join(result.Failed, "\n\n"))
	}
}

// maxRequests is larger than the number of requests of any call.
const maxRequests = 60

// explorePair tries a pair with A held at its first request, its second, and so on, until A returns before that request.
func explorePair(setup explorerSetup, a, b explorerCall, try func(interleaving) (short bool)) {
	events := clusterEvents()
	for n := 1; n <= maxRequests; n++ {
		all := []interleaving{{setup: setup, a: a, b: b, n: n, hold: heldBefore}}
		if !b.independent {
			all = append(all, interleaving{setup: setup, a: a, b: b, n: n, hold: responseDelayed}, interleaving{setup: setup, a: a, b: b, n: n, hold: responseLost})
		}
		all = append(all, interleaving{setup: setup, a: a, b: b, n: n, hold: heldBefore, event: events[n%len(events)]})
		for _, x := range all {
			if x.selected() && try(x) {
				return
			}
		}
		if explorePattern == "" && n >= 12 {
			return // counting the requests of A would cost an environment and a call
		}
	}
}

// exploreTriples tries a pair with each third call, with A and B held at random requests.
func exploreTriples(setup explorerSetup, a, b explorerCall, try func(interleaving) (short bool)) {
	if !slices.ContainsFunc(setup.tripleCalls, a.equals) || !slices.ContainsFunc(setup.tripleCalls, b.equals) {
		return
	}
	for _, c := range setup.tripleCalls {
		for drawn := range drawsPerTriple {
			seed := fnv.New64a()
			_, _ = fmt.Fprint(seed, setup.name, a.name, b.name, c.name, drawn)
			chance := rand.New(rand.NewPCG(seed.Sum64(), 0)) //nolint:gosec // not used for a secret
			x := interleaving{setup: setup, a: a, b: b, c: &c, n: 1 + chance.IntN(maxHeldRequest), m: 1 + chance.IntN(maxHeldRequest), hold: heldBefore}
			if x.selected() {
				try(x)
			}
		}
	}
}

// Each triple is tried drawsPerTriple times. A and B are held at one of their first maxHeldRequest requests.
const (
	drawsPerTriple = 3
	maxHeldRequest = 6
)

// requestGate holds the nth request of a call, not counting those for Events and nodes. A watch is always held before it is sent.
type requestGate struct {
	reached  chan struct{} // closed when the request arrives
	released chan struct{} // closed to let the request continue
}

func newRequestGate(n int, point holdPoint) (*requestGate, apiproxy.Fault) {
	g := &requestGate{reached: make(chan struct{}), released: make(chan struct{})}
	var mutex sync.Mutex
	count := 0
	return g, func(_ int, w http.ResponseWriter, r *http.Request, next http.Handler) {
		if strings.HasSuffix(r.URL.Path, "/events") || strings.HasSuffix(r.URL.Path, "/nodes") {
			next.ServeHTTP(w, r)
			return
		}
		mutex.Lock()
		count++
		isNth := count == n
		mutex.Unlock()
		if !isNth {
			next.ServeHTTP(w, r)
			return
		}
		if point == heldBefore || r.URL.Query().Get("watch") != "" {
			close(g.reached)
			<-g.released
			next.ServeHTTP(w, r)
			return
		}
		response := httptest.NewRecorder()
		next.ServeHTTP(response, r)
		close(g.reached)
		<-g.released
		if point == responseLost {
			panic(http.ErrAbortHandler)
		}
		maps.Copy(w.Header(), response.Header())
		w.WriteHeader(response.Code)
		_, _ = w.Write(response.Body.Bytes())
	}
}

// runInterleaving tries one interleaving. reached is false if A returned before its nth request.
func (env *explorerTestEnv) runInterleaving(ctx context.Context, x interleaving) (reached bool) {
	env.recordSoloOutcome(ctx, x)
	env.resetVMs(ctx)
	x.setup.prepare(ctx, env)
	if env.successor != "" {
		env.requiredDisks = append(env.requiredDisks, env.successor)
	}
	states := []namespaceState{env.currentState(ctx)}
	step := func(name string) namespaceState {
		now := env.currentState(ctx)
		states = append(states, now)
		Expect(env.invariantViolations(now)).To(BeEmpty(), func() string { return name + "\n" + env.describe(now) })
		return now
	}

	gate, fault := newRequestGate(x.n, x.hold)
	var once sync.Once
	release := func() { once.Do(func() { close(gate.released) }) }
	defer release()
	env.directors[0].proxy.Reset(env.firstCallFault(ctx, x.setup, fault))
	defer env.directors[0].proxy.Reset(nil)
	first := env.startExplorerCall(ctx, env.firstDirector(x.setup), x.a)
	env.firstResponse, env.firstCall = first, x.a
	select {
	case <-gate.reached:
		reached = true
		step("while " + x.a.name + " is held")
	case response := <-first:
		first <- response
	}

	undisturbed := x.event.name == "" // except by A and B
	if reached {
		undisturbed = env.runSecondCall(ctx, x, release, step) && undisturbed
	}
	response := <-first
	env.firstCall = explorerCall{}
	env.recordResponse(x.a, response)
	now := step("after " + x.a.name)
	if undisturbed {
		env.expectConsistentOnce(x.a, states, response, now)
		Eventually(func() []string { return env.consistencyErrors(env.currentState(ctx)) }).WithContext(ctx).WithTimeout(10*time.Second).
			WithPolling(30*time.Millisecond).Should(BeEmpty(), "after both calls have returned")
		if x.b.independent && reached {
			env.expectSoloOutcome(x, states[0], now, response)
		}
	}
	if reached {
		env.repeatCalls(ctx, x, step)
	}
	if x.event.revert != nil {
		x.event.revert(ctx, env)
	}
	if remaining := env.cleanup(ctx); len(remaining) > 0 {
		now := env.currentState(ctx)
		Expect(remaining).To(BeEmpty(), func() string { return "remaining after the cleanup\n" + env.describe(now) })
	}
	return reached
}

// runSecondCall runs the second call, and applies the cluster event, while the first call is held. Then it releases the first call.
// undisturbed is false if the first call had to be released before the second one returned.
func (env *explorerTestEnv) runSecondCall(ctx context.Context, x interleaving, release func(), step func(string) namespaceState) (undisturbed bool) {
	env.directors[1].proxy.Reset(env.secondCallFault(ctx, x.setup))
	second := env.startSecondCall(ctx, x)
	var response director.Response
	undisturbed = true
	select {
	case response = <-second:
	case <-time.After(heldCallTimeout):
		undisturbed = false
		release()
		response = <-second
	}
	env.recordResponse(x.b, response)
	now := step("after " + x.b.name)
	if undisturbed && x.event.name == "" {
		Expect(x.b.check(env, now, response)).To(BeEmpty(), func() string {
			return fmt.Sprintf("%s returned %s while %s was held\n%s", x.b.name, response.Result, x.a.name, env.describe(now))
		})
	}
	if x.event.name != "" {
		x.event.apply(ctx, env)
		step("after " + x.event.name)
	}
	release()
	return undisturbed
}

// repeatCalls repeats both calls once.
func (env *explorerTestEnv) repeatCalls(ctx context.Context, x interleaving, step func(string) namespaceState) {
	for _, call := range []explorerCall{x.a, x.b} {
		env.directors[1].proxy.Reset(env.secondCallFault(ctx, x.setup))
		response := <-env.startExplorerCall(ctx, env.directors[1].Director, call)
		env.recordResponse(call, response)
		step("after " + call.name + " again")
	}
}

// startSecondCall starts the second call. If there is a third call, it runs first, while the second one is held.
func (env *explorerTestEnv) startSecondCall(ctx context.Context, x interleaving) chan director.Response {
	if x.c == nil {
		return env.startExplorerCall(ctx, env.directors[1].Director, x.b)
	}
	gate, fault := newRequestGate(x.m, heldBefore)
	defer close(gate.released)
	env.directors[1].proxy.Reset(fault)
	second := env.startExplorerCall(ctx, env.directors[1].Director, x.b)
	select {
	case <-gate.reached:
	case response := <-second:
		second <- response
	}
	third := env.startExplorerCall(ctx, env.directors[2].Director, *x.c)
	select {
	case response := <-third:
		env.recordResponse(*x.c, response)
	case <-time.After(heldCallTimeout):
	}
	return second
}

// firstDirector returns the director of the first call, with short timeouts in a slow setup.
func (env *explorerTestEnv) firstDirector(setup explorerSetup) *director.Director {
	if !setup.slow {
		return env.directors[0].Director
	}
	callerEnv := env.testEnv
	callerEnv.Director = env.directors[0].Director
	timeouts := maps.Clone(explorerTimeouts)
	timeouts["attach_disk"], timeouts["update_disk"] = "1500ms", "2500ms"
	return callerEnv.directorWithTimeouts(timeouts)
}

const holdAnnotation = "test/hold"

// firstCallFault adds the annotations and the hook of the setup to the fault of the first call.
func (env *explorerTestEnv) firstCallFault(ctx context.Context, setup explorerSetup, fault apiproxy.Fault) apiproxy.Fault {
	var once sync.Once
	return func(n int, w http.ResponseWriter, r *http.Request, next http.Handler) {
		annotations := map[string]string{"test/reboots": "yes"}
		if setup.slow {
			annotations[holdAnnotation] = "yes"
		}
		annotateNewPod(r, annotations)
		if setup.onWatch != nil && r.URL.Query().Get("watch") != "" {
			once.Do(func() { setup.onWatch(ctx, env) })
		}
		fault(n, w, r, next)
	}
}

// secondCallFault lets the Pod of the first call start, and copies succeed, when the second call starts to watch Pods.
func (env *explorerTestEnv) secondCallFault(ctx context.Context, setup explorerSetup) apiproxy.Fault {
	return func(_ int, w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.URL.Query().Get("watch") != "" && strings.HasSuffix(r.URL.Path, "/pods") {
			if setup.slow {
				_ = env.annotatePod(ctx, env.disk+"-attachment", holdAnnotation, nil)
			}
			_ = env.annotatePod(ctx, env.disk+"-attachment", "test/exit", new("0"))
		}
		next.ServeHTTP(w, r)
	}
}

// soloErrorTypes are the error types of first calls that run alone, by setup and call; "" means success.
var soloErrorTypes = map[string]string{}

// recordSoloOutcome runs the first call alone, and records its error type. If it fails, it must not change the owner of the disk.
func (env *explorerTestEnv) recordSoloOutcome(ctx context.Context, x interleaving) {
	key := x.setup.name + ": " + x.a.name
	if _, known := soloErrorTypes[key]; known || !x.b.independent {
		return
	}
	env.resetVMs(ctx)
	x.setup.prepare(ctx, env)
	previous := env.currentState(ctx)
	env.directors[0].proxy.Reset(env.firstCallFault(ctx, x.setup, func(_ int, w http.ResponseWriter, r *http.Request, next http.Handler) { next.ServeHTTP(w, r) }))
	response := <-env.startExplorerCall(ctx, env.firstDirector(x.setup), x.a)
	env.directors[0].proxy.Reset(nil)
	soloErrorTypes[key] = errorType(response)
	if response.Error != nil {
		now := env.currentState(ctx)
		Expect(now.owner(env.disk)).To(Equal(previous.owner(env.disk)), "%s failed alone: %v\n%s", x.a.name, response.Error, env.describe(now))
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

// expectSoloOutcome expects that A returns the same error type at the same time as an independent call as alone, and that a failed A does
// not change the owner of the disk.
func (env *explorerTestEnv) expectSoloOutcome(x interleaving, previous, now namespaceState, response director.Response) {
	Expect(errorType(response)).To(Equal(soloErrorTypes[x.setup.name+": "+x.a.name]), "%s at the same time as %s: %v", x.a.name, x.b.name, response.Error)
	if response.Error != nil {
		Expect(now.owner(env.disk)).To(Equal(previous.owner(env.disk)), "%s failed: %v\n%s", x.a.name, response.Error, env.describe(now))
	}
}

// startExplorerCall starts a call, and sends its response to the channel that it returns.
func (env *explorerTestEnv) startExplorerCall(ctx context.Context, caller *director.Director, call explorerCall) chan director.Response {
	arguments := call.call(env)
	env.releaseDisks(call)
	method, _ := arguments[0].(string)
	responses := make(chan director.Response, 1)
	go func() {
		if call.run != nil {
			responses <- call.run(ctx, env)
			return
		}
		response, err := caller.Call(ctx, method, arguments[1:]...)
		if err != nil {
			response.Error = &director.Error{Type: "the process", Message: err.Error()}
		}
		responses <- response
	}()
	return responses
}

// recordResponse records which disks the director knows after this response.
func (env *explorerTestEnv) recordResponse(call explorerCall, response director.Response) {
	if response.Error != nil {
		Expect(response.Error.Type).To(HavePrefix("Bosh::Clouds::"), "%s: %s", call.name, response.Stderr)
	}
	if method, _ := call.call(env)[0].(string); method == "update_disk" && response.Error == nil {
		if successor := response.Text(); successor != env.disk {
			env.successor = successor
			env.requiredDisks = append(env.requiredDisks, successor)
			env.releaseDisks(env.firstCall)
			if env.copyAbandoned { // by a call that succeeded meanwhile
				env.releaseDisks(attachDiskCall(vmOne))
			}
		}
	}
	if response.Error == nil {
		env.releaseDisks(call)
		env.copyAbandoned = env.copyAbandoned || call.releasedDisks != nil && env.firstCall.name != ""
	}
}

// releaseDisks records which disks calls may delete from now on.
func (env *explorerTestEnv) releaseDisks(call explorerCall) {
	env.diskDeleted = env.diskDeleted || call.deletesDisk
	if call.releasedDisks != nil {
		released := call.releasedDisks(env)
		env.requiredDisks = slices.DeleteFunc(env.requiredDisks, func(disk string) bool { return slices.Contains(released, disk) })
	}
}

// expectConsistentOnce fails if the response contradicts all states that were observed between the request and the response.
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

var _ = ReportAfterSuite("interleavings", func(report Report) {
	var all explorerResult
	for _, spec := range report.SpecReports {
		for _, entry := range spec.ReportEntries {
			if entry.Name != explorerReportEntry {
				continue
			}
			result, ok := entry.GetRawValue().(explorerResult)
			if !ok { // the entry is from another Ginkgo process
				Expect(json.Unmarshal([]byte(entry.Value.AsJSON), &result)).To(Succeed())
			}
			all.Pairs, all.Interleavings, all.Passed = all.Pairs+result.Pairs, all.Interleavings+result.Interleavings, all.Passed+result.Passed
		}
	}
	if all.Interleavings > 0 {
		fmt.Fprintf(os.Stdout, "\npairs: %d  interleavings: %d  passed: %d (seed %d)\n", all.Pairs, all.Interleavings, all.Passed, report.SuiteConfig.RandomSeed)
	}
})

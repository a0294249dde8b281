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

// The interleaving explorer runs two calls about the same things at once, in each order that matters: call A is held at each
// of its requests, before the API server sees it or after; call B runs meanwhile; a cluster event may follow; then A goes on. Both
// are repeated once, and what they made is removed with the inverse calls. What must hold is checked after each step.
//
// EXPLORE is "all", or a regular expression for the names of interleavings; a part, drawn by the seed, is tried without it.
var explorePattern = envOr("EXPLORE", "")

// interleavingParts is how many runs without EXPLORE try all of them.
const interleavingParts = 500

// heldCallTimeout is how long B may wait for A, which is held: then A goes on.
const heldCallTimeout = 4 * time.Second

// A hold is where A stands still while B runs.
type holdPoint string

const (
	heldBefore    holdPoint = "before"
	answerDelayed holdPoint = "after, its answer delayed"
	answerLost    holdPoint = "after, its answer lost"
)

// A clusterEvent is what others do while A is held and B has ended.
type clusterEvent struct {
	name   string
	apply  func(ctx context.Context, env *explorerTestEnv)
	revert func(ctx context.Context, env *explorerTestEnv) // once both calls were repeated; nil: nothing
}

func clusterEvents() []clusterEvent {
	return []clusterEvent{
		{name: "the attachment is deleted", apply: func(ctx context.Context, env *explorerTestEnv) { env.deletePod(ctx, env.disk+"-attachment") }},
		{name: "the VM's Pod is deleted", apply: func(ctx context.Context, env *explorerTestEnv) { env.deletePod(ctx, vmOne) }},
		{name: "the disk's PVC is deleted", apply: func(ctx context.Context, env *explorerTestEnv) {
			env.requiredDisks, env.diskDeleted = nil, true
			_ = cluster.CoreV1().PersistentVolumeClaims(env.namespace).Delete(ctx, env.disk, metav1.DeleteOptions{})
		}},
		{name: "the VM's node is lost", apply: func(ctx context.Context, env *explorerTestEnv) { env.markNodeUnreachable(ctx, env.node) },
			revert: func(ctx context.Context, env *explorerTestEnv) { env.markNodeReachable(ctx, env.node) }},
		{name: "the API server restarts", apply: func(ctx context.Context, env *explorerTestEnv) { env.refuseConnections(ctx) }},
	}
}

// refuseConnections does to the first call what a restart of the API server does: its connections break, that of the held request
// too, and the next one is refused, unless the call ends before. (The server itself is shared with other specs, which would notice.)
func (env *explorerTestEnv) refuseConnections(ctx context.Context) {
	proxy := env.directors[0].proxy
	proxy.BreakConnections()
	Eventually(func() bool { return len(proxy.Requests()) > 0 || len(env.firstResponse) > 0 }).WithContext(ctx).WithTimeout(10 * time.Second).
		WithPolling(10 * time.Millisecond).Should(BeTrue())
	proxy.Reset(nil)
}

// deletePod deletes a Pod as others do, and waits until it is gone.
func (env *explorerTestEnv) deletePod(ctx context.Context, name string) {
	if cluster.CoreV1().Pods(env.namespace).Delete(ctx, name, metav1.DeleteOptions{}) == nil {
		Eventually(func() any { return env.currentState(ctx).pods[name] }).WithContext(ctx).WithTimeout(10 * time.Second).
			WithPolling(20 * time.Millisecond).Should(BeNil())
	}
}

// interleaving is one way in which two calls cross each other.
type interleaving struct {
	setting explorerSetup
	a, b    explorerCall
	n       int // the request of A at which it is held
	hold    holdPoint
	event   clusterEvent
	// c is a third call, or nil: it runs while B is held before its request m.
	c *explorerCall
	m int
}

func (x interleaving) String() string {
	text := fmt.Sprintf("%s: %s, held at request %d (%s), crossed by %s", x.setting.name, x.a.name, x.n, x.hold, x.b.name)
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

var _ = Describe("Two calls at once", Label("faults"), func() {
	for _, setup := range explorerSetups() {
		if explorePattern == "" {
			It("leave one owner per disk, about "+setup.name, func(ctx context.Context) { explore(ctx, setup, setup.firstCalls) }, NodeTimeout(time.Hour))
			continue
		}
		for _, a := range setup.firstCalls {
			It("leave one owner per disk, about "+setup.name+", the first "+a.name, func(ctx context.Context) {
				explore(ctx, setup, []explorerCall{a})
			}, NodeTimeout(3*time.Hour))
		}
	}
})

// explorerResult is what became of the interleavings of a spec.
type explorerResult struct {
	Pairs, Interleavings, Held int
	Failed                     []string
}

const explorerReportEntry = "interleavings"

// explore tries the interleavings of these first calls with all others of the setting.
func explore(ctx context.Context, setup explorerSetup, first []explorerCall) {
	var run explorerResult
	var env *explorerTestEnv
	done := func() {}
	defer func() { done() }() //nolint:gocritic // it becomes another function
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
			run.Failed = append(run.Failed, fmt.Sprintf("%s:\n%v", x, failure))
			done()
			env, done = nil, func() {}
		}
		if reached || failure != nil {
			run.Interleavings++
		}
		if reached && failure == nil {
			run.Held++
		}
		return !reached && failure == nil
	}
	for _, a := range first {
		for _, b := range setup.crossingCalls() {
			tried := run.Interleavings
			explorePair(setup, a, b, try)
			exploreTriples(setup, a, b, try)
			if run.Interleavings > tried {
				run.Pairs++
			}
		}
	}
	AddReportEntry(explorerReportEntry, run, ReportEntryVisibilityNever)
	if len(run.Failed) > 0 {
		Fail(strings.Join(run.Failed, "\n\n"))
	}
}

// maxRequests is more than any call sends.
const maxRequests = 60

// explorePair tries a pair, with A held at its first request, at its second, and so on, until it ends before that.
func explorePair(setup explorerSetup, a, b explorerCall, try func(interleaving) (short bool)) {
	events := clusterEvents()
	for n := 1; n <= maxRequests; n++ {
		all := []interleaving{{setting: setup, a: a, b: b, n: n, hold: heldBefore}}
		if !b.independent {
			all = append(all, interleaving{setting: setup, a: a, b: b, n: n, hold: answerDelayed}, interleaving{setting: setup, a: a, b: b, n: n, hold: answerLost})
		}
		all = append(all, interleaving{setting: setup, a: a, b: b, n: n, hold: heldBefore, event: events[n%len(events)]})
		for _, x := range all {
			if x.selected() && try(x) {
				return
			}
		}
		if explorePattern == "" && n >= 12 {
			return // no arena is made to find how many requests a call sends
		}
	}
}

// exploreTriples tries a pair with each third call, A and B held at requests that are drawn.
func exploreTriples(setup explorerSetup, a, b explorerCall, try func(interleaving) (short bool)) {
	if !slices.ContainsFunc(setup.tripleCalls, a.equals) || !slices.ContainsFunc(setup.tripleCalls, b.equals) {
		return
	}
	for _, c := range setup.tripleCalls {
		for drawn := range drawsPerTriple {
			seed := fnv.New64a()
			_, _ = fmt.Fprint(seed, setup.name, a.name, b.name, c.name, drawn)
			chance := rand.New(rand.NewPCG(seed.Sum64(), 0)) //nolint:gosec // chance, not a secret
			x := interleaving{setting: setup, a: a, b: b, c: &c, n: 1 + chance.IntN(maxHeldRequest), m: 1 + chance.IntN(maxHeldRequest), hold: heldBefore}
			if x.selected() {
				try(x)
			}
		}
	}
}

// Each three calls are tried in as many ways, held at one of as many requests.
const (
	drawsPerTriple = 3
	maxHeldRequest = 6
)

// requestGate holds the nth request of a call, watches and Events aside: those are only held before they are sent.
type requestGate struct {
	reached  chan struct{} // closed when the request has come
	released chan struct{} // closed when it may go on
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
		answer := httptest.NewRecorder()
		next.ServeHTTP(answer, r)
		close(g.reached)
		<-g.released
		if point == answerLost {
			panic(http.ErrAbortHandler)
		}
		maps.Copy(w.Header(), answer.Header())
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes())
	}
}

// runInterleaving tries one interleaving. reached is false if A ended before its nth request.
func (env *explorerTestEnv) runInterleaving(ctx context.Context, x interleaving) (reached bool) {
	env.recordSoloOutcome(ctx, x)
	env.resetVMs(ctx)
	x.setting.prepare(ctx, env)
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
	env.directors[0].proxy.Reset(env.firstCallFault(ctx, x.setting, fault))
	defer env.directors[0].proxy.Reset(nil)
	first := env.startExplorerCall(ctx, env.firstDirector(x.setting), x.a)
	env.firstResponse, env.firstCall = first, x.a
	select {
	case <-gate.reached:
		reached = true
		step("while " + x.a.name + " is held")
	case answer := <-first:
		first <- answer
	}

	undisturbed := x.event.name == "" // by others than A and B
	if reached {
		undisturbed = env.runSecondCall(ctx, x, release, step) && undisturbed
	}
	answer := <-first
	env.firstCall = explorerCall{}
	env.recordAnswer(x.a, answer)
	now := step("after " + x.a.name)
	if undisturbed {
		env.expectConsistentOnce(x.a, states, answer, now)
		Eventually(func() []string { return env.consistencyErrors(env.currentState(ctx)) }).WithContext(ctx).WithTimeout(10*time.Second).
			WithPolling(30*time.Millisecond).Should(BeEmpty(), "once both have ended")
		if x.b.independent && reached {
			env.expectSoloOutcome(x, states[0], now, answer)
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
		Expect(remaining).To(BeEmpty(), func() string { return "what the inverse calls and garbage collection leave\n" + env.describe(now) })
	}
	return reached
}

// runSecondCall runs the second call to its end, and lets the cluster event happen, while the first call is held; then that goes on.
// alone is false if the second call had to wait for the first one.
func (env *explorerTestEnv) runSecondCall(ctx context.Context, x interleaving, release func(), step func(string) namespaceState) (alone bool) {
	env.directors[1].proxy.Reset(env.secondCallFault(ctx, x.setting))
	second := env.startSecondCall(ctx, x)
	var answer director.Response
	alone = true
	select {
	case answer = <-second:
	case <-time.After(heldCallTimeout):
		alone = false
		release()
		answer = <-second
	}
	env.recordAnswer(x.b, answer)
	now := step("after " + x.b.name)
	if alone && x.event.name == "" {
		Expect(x.b.check(env, now, answer)).To(BeEmpty(), func() string {
			return fmt.Sprintf("%s answered %s, while %s was held\n%s", x.b.name, answer.Result, x.a.name, env.describe(now))
		})
	}
	if x.event.name != "" {
		x.event.apply(ctx, env)
		step("after " + x.event.name)
	}
	release()
	return alone
}

// repeatCalls makes both calls once more.
func (env *explorerTestEnv) repeatCalls(ctx context.Context, x interleaving, step func(string) namespaceState) {
	for _, call := range []explorerCall{x.a, x.b} {
		env.directors[1].proxy.Reset(env.secondCallFault(ctx, x.setting))
		response := <-env.startExplorerCall(ctx, env.directors[1].Director, call)
		env.recordAnswer(call, response)
		step("after " + call.name + " again")
	}
}

// startSecondCall starts the second call. If there is a third one, that runs first, while the second one is held.
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
	case answer := <-second:
		second <- answer
	}
	third := env.startExplorerCall(ctx, env.directors[2].Director, *x.c)
	select {
	case answer := <-third:
		env.recordAnswer(*x.c, answer)
	case <-time.After(heldCallTimeout):
	}
	return second
}

// firstDirector is the director of the first call: impatient in a slow setting.
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

// firstCallFault is the fault of the first call's requests, with what the setting adds.
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

// secondCallFault lets what the first call has created come up, and lets copies succeed, when the second one begins to watch.
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

// soloErrorTypes are the types of errors with which first calls end alone, by setting and call; "" stands for success.
var soloErrorTypes = map[string]string{}

// recordSoloOutcome makes the first call without a second one, and notes how it ends. What it leaves when it fails is nothing.
func (env *explorerTestEnv) recordSoloOutcome(ctx context.Context, x interleaving) {
	key := x.setting.name + ": " + x.a.name
	if _, known := soloErrorTypes[key]; known || !x.b.independent {
		return
	}
	env.resetVMs(ctx)
	x.setting.prepare(ctx, env)
	previous := env.currentState(ctx)
	env.directors[0].proxy.Reset(env.firstCallFault(ctx, x.setting, func(_ int, w http.ResponseWriter, r *http.Request, next http.Handler) { next.ServeHTTP(w, r) }))
	answer := <-env.startExplorerCall(ctx, env.firstDirector(x.setting), x.a)
	env.directors[0].proxy.Reset(nil)
	soloErrorTypes[key] = errorType(answer)
	if answer.Error != nil {
		now := env.currentState(ctx)
		Expect(now.owner(env.disk)).To(Equal(previous.owner(env.disk)), "%s has failed alone: %v\n%s", x.a.name, answer.Error, env.describe(now))
	}
	Expect(env.cleanup(ctx)).To(BeEmpty())
}

func errorType(answer director.Response) string {
	if answer.Error == nil {
		return ""
	}
	return answer.Error.Type
}

// expectSoloOutcome fails unless A has ended beside a harmless call as it does alone. When it fails it leaves the owner of the disk as it was.
func (env *explorerTestEnv) expectSoloOutcome(x interleaving, previous, now namespaceState, answer director.Response) {
	Expect(errorType(answer)).To(Equal(soloErrorTypes[x.setting.name+": "+x.a.name]), "%s beside %s: %v", x.a.name, x.b.name, answer.Error)
	if answer.Error != nil {
		Expect(now.owner(env.disk)).To(Equal(previous.owner(env.disk)), "%s has failed: %v\n%s", x.a.name, answer.Error, env.describe(now))
	}
}

// startExplorerCall makes a call, and hands over its response.
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

// recordAnswer notes what a call has answered: which disks the director knows since.
func (env *explorerTestEnv) recordAnswer(call explorerCall, answer director.Response) {
	if answer.Error != nil {
		Expect(answer.Error.Type).To(HavePrefix("Bosh::Clouds::"), "%s: %s", call.name, answer.Stderr)
	}
	if method, _ := call.call(env)[0].(string); method == "update_disk" && answer.Error == nil {
		if successor := answer.Text(); successor != env.disk {
			env.successor = successor
			env.requiredDisks = append(env.requiredDisks, successor)
			env.releaseDisks(env.firstCall)
			if env.copyAbandoned { // meanwhile, by a call that has succeeded
				env.releaseDisks(attachDiskCall(vmOne))
			}
		}
	}
	if answer.Error == nil {
		env.releaseDisks(call)
		env.copyAbandoned = env.copyAbandoned || call.releasedDisks != nil && env.firstCall.name != ""
	}
}

// releaseDisks notes which disks no call has to keep any more.
func (env *explorerTestEnv) releaseDisks(call explorerCall) {
	env.diskDeleted = env.diskDeleted || call.deletesDisk
	if call.releasedDisks != nil {
		released := call.releasedDisks(env)
		env.requiredDisks = slices.DeleteFunc(env.requiredDisks, func(disk string) bool { return slices.Contains(released, disk) })
	}
}

// expectConsistentOnce fails when the answer contradicts the cluster at all moments between its request and its answer that were looked at.
func (env *explorerTestEnv) expectConsistentOnce(call explorerCall, states []namespaceState, answer director.Response, now namespaceState) {
	var why string
	for _, state := range states {
		if why = call.check(env, state, answer); why == "" {
			return
		}
	}
	Expect(why).To(BeEmpty(), func() string {
		return fmt.Sprintf("%s answered %s\n%s", call.name, answer.Result, env.describe(now))
	})
}

var _ = ReportAfterSuite("interleavings", func(report Report) {
	var all explorerResult
	for _, spec := range report.SpecReports {
		for _, entry := range spec.ReportEntries {
			if entry.Name != explorerReportEntry {
				continue
			}
			run, ok := entry.GetRawValue().(explorerResult)
			if !ok { // it comes from another process
				Expect(json.Unmarshal([]byte(entry.Value.AsJSON), &run)).To(Succeed())
			}
			all.Pairs, all.Interleavings, all.Held = all.Pairs+run.Pairs, all.Interleavings+run.Interleavings, all.Held+run.Held
		}
	}
	if all.Interleavings > 0 {
		fmt.Fprintf(os.Stdout, "\npairs: %d  interleavings: %d  held: %d (seed %d)\n", all.Pairs, all.Interleavings, all.Held, report.SuiteConfig.RandomSeed)
	}
})

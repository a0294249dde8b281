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
var explored = explorerEnv("EXPLORE", "")

// partsOfInterleavings is how many runs without EXPLORE try all of them.
const partsOfInterleavings = 500

// waitForHeld is how long B may wait for A, which is held: then A goes on.
const waitForHeld = 4 * time.Second

// A hold is where A stands still while B runs.
type hold string

const (
	heldBefore    hold = "before"
	answerDelayed hold = "after, its answer delayed"
	answerLost    hold = "after, its answer lost"
)

// A clusterEvent is what others do while A is held and B has ended.
type clusterEvent struct {
	name    string
	happens func(ctx context.Context, a *arena)
	over    func(ctx context.Context, a *arena) // once both calls were repeated; nil: nothing
}

func clusterEvents() []clusterEvent {
	return []clusterEvent{
		{name: "the attachment is deleted", happens: func(ctx context.Context, a *arena) { a.deletePod(ctx, a.disk+"-attachment") }},
		{name: "the VM's Pod is deleted", happens: func(ctx context.Context, a *arena) { a.deletePod(ctx, vmOne) }},
		{name: "the disk's PVC is deleted", happens: func(ctx context.Context, a *arena) {
			a.kept, a.deleted = nil, true
			_ = cluster.CoreV1().PersistentVolumeClaims(a.namespace).Delete(ctx, a.disk, metav1.DeleteOptions{})
		}},
		{name: "the VM's node is lost", happens: func(ctx context.Context, a *arena) { a.silence(ctx, a.node) },
			over: func(ctx context.Context, a *arena) { a.revive(ctx, a.node) }},
		{name: "the API server restarts", happens: func(ctx context.Context, a *arena) { a.refuseConnections(ctx) }},
	}
}

// refuseConnections does to the first call what a restart of the API server does: its connections break, that of the held request
// too, and the next one is refused, unless the call ends before. (The server itself is shared with other specs, which would notice.)
func (a *arena) refuseConnections(ctx context.Context) {
	proxy := a.sides[0].proxy
	proxy.Cut()
	Eventually(func() bool { return len(proxy.Requests()) > 0 || len(a.first) > 0 }).WithContext(ctx).WithTimeout(10 * time.Second).
		WithPolling(10 * time.Millisecond).Should(BeTrue())
	proxy.Reset(nil)
}

// deletePod deletes a Pod as others do, and waits until it is gone.
func (a *arena) deletePod(ctx context.Context, name string) {
	if cluster.CoreV1().Pods(a.namespace).Delete(ctx, name, metav1.DeleteOptions{}) == nil {
		Eventually(func() any { return a.now(ctx).pods[name] }).WithContext(ctx).WithTimeout(10 * time.Second).
			WithPolling(20 * time.Millisecond).Should(BeNil())
	}
}

// interleaving is one way in which two calls cross each other.
type interleaving struct {
	setting setting
	a, b    move
	n       int // the request of A at which it is held
	hold    hold
	event   clusterEvent
	// c is a third call, or nil: it runs while B is held before its request m.
	c *move
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

func (x interleaving) wanted() bool {
	switch explored {
	case "":
		return part(x.String(), partsOfInterleavings)
	case "all":
		return true
	}
	return regexp.MustCompile(explored).MatchString(x.String())
}

var _ = Describe("Two calls at once", Label("faults"), func() {
	for _, in := range settings() {
		if explored == "" {
			It("leave one owner per disk, about "+in.name, func(ctx context.Context) { explore(ctx, in, in.first) }, NodeTimeout(time.Hour))
			continue
		}
		for _, a := range in.first {
			It("leave one owner per disk, about "+in.name+", the first "+a.name, func(ctx context.Context) {
				explore(ctx, in, []move{a})
			}, NodeTimeout(3*time.Hour))
		}
	}
})

// explorerRun is what became of the interleavings of a spec.
type explorerRun struct {
	Pairs, Interleavings, Held int
	Failed                     []string
}

const entryOfExplorer = "interleavings"

// explore tries the interleavings of these first calls with all others of the setting.
func explore(ctx context.Context, in setting, first []move) {
	var run explorerRun
	var a *arena
	done := func() {}
	defer func() { done() }() //nolint:gocritic // it becomes another function
	try := func(x interleaving) (short bool) {
		if a == nil {
			a, done = newArena(ctx, 3)
		}
		started := time.Now()
		var reached bool
		failure := InterceptGomegaFailure(func() { reached = a.interleave(ctx, x) })
		fmt.Fprintf(GinkgoWriter, "%6.1fs %s\n", time.Since(started).Seconds(), x)
		if failure != nil {
			fmt.Fprintf(GinkgoWriter, "violation: %s\n%v\n", x, failure)
			run.Failed = append(run.Failed, fmt.Sprintf("%s:\n%v", x, failure))
			done()
			a, done = nil, func() {}
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
		for _, b := range in.seconds() {
			tried := run.Interleavings
			exploreFrom(in, a, b, try)
			exploreThree(in, a, b, try)
			if run.Interleavings > tried {
				run.Pairs++
			}
		}
	}
	AddReportEntry(entryOfExplorer, run, ReportEntryVisibilityNever)
	if len(run.Failed) > 0 {
		Fail(strings.Join(run.Failed, "\n\n"))
	}
}

// mostRequests is more than any call sends.
const mostRequests = 60

// exploreFrom tries a pair, with A held at its first request, at its second, and so on, until it ends before that.
func exploreFrom(in setting, a, b move, try func(interleaving) (short bool)) {
	events := clusterEvents()
	for n := 1; n <= mostRequests; n++ {
		all := []interleaving{{setting: in, a: a, b: b, n: n, hold: heldBefore}}
		if !b.harmless {
			all = append(all, interleaving{setting: in, a: a, b: b, n: n, hold: answerDelayed}, interleaving{setting: in, a: a, b: b, n: n, hold: answerLost})
		}
		all = append(all, interleaving{setting: in, a: a, b: b, n: n, hold: heldBefore, event: events[n%len(events)]})
		for _, x := range all {
			if x.wanted() && try(x) {
				return
			}
		}
		if explored == "" && n >= 12 {
			return // no arena is made to find how many requests a call sends
		}
	}
}

// exploreThree tries a pair with each third call, A and B held at requests that are drawn.
func exploreThree(in setting, a, b move, try func(interleaving) (short bool)) {
	if !slices.ContainsFunc(in.three, a.is) || !slices.ContainsFunc(in.three, b.is) {
		return
	}
	for _, c := range in.three {
		for drawn := range threeHolds {
			seed := fnv.New64a()
			_, _ = fmt.Fprint(seed, in.name, a.name, b.name, c.name, drawn)
			chance := rand.New(rand.NewPCG(seed.Sum64(), 0)) //nolint:gosec // chance, not a secret
			x := interleaving{setting: in, a: a, b: b, c: &c, n: 1 + chance.IntN(mostHolds), m: 1 + chance.IntN(mostHolds), hold: heldBefore}
			if x.wanted() {
				try(x)
			}
		}
	}
}

// Each three calls are tried in as many ways, held at one of as many requests.
const (
	threeHolds = 3
	mostHolds  = 6
)

// gate holds the nth request of a call, watches and Events aside: those are only held before they are sent.
type gate struct {
	reached chan struct{} // closed when the request has come
	open    chan struct{} // closed when it may go on
}

func newGate(n int, how hold) (*gate, apiproxy.Fault) {
	g := &gate{reached: make(chan struct{}), open: make(chan struct{})}
	var mutex sync.Mutex
	count := 0
	return g, func(_ int, w http.ResponseWriter, r *http.Request, next http.Handler) {
		if strings.HasSuffix(r.URL.Path, "/events") || strings.HasSuffix(r.URL.Path, "/nodes") {
			next.ServeHTTP(w, r)
			return
		}
		mutex.Lock()
		count++
		mine := count == n
		mutex.Unlock()
		if !mine {
			next.ServeHTTP(w, r)
			return
		}
		if how == heldBefore || r.URL.Query().Get("watch") != "" {
			close(g.reached)
			<-g.open
			next.ServeHTTP(w, r)
			return
		}
		answer := httptest.NewRecorder()
		next.ServeHTTP(answer, r)
		close(g.reached)
		<-g.open
		if how == answerLost {
			panic(http.ErrAbortHandler)
		}
		maps.Copy(w.Header(), answer.Header())
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes())
	}
}

// interleave tries one interleaving. reached is false if A ended before its nth request.
func (a *arena) interleave(ctx context.Context, x interleaving) (reached bool) {
	a.alone(ctx, x)
	a.settle(ctx)
	x.setting.begin(ctx, a)
	if a.successor != "" {
		a.kept = append(a.kept, a.successor)
	}
	states := []state{a.now(ctx)}
	step := func(name string) state {
		now := a.now(ctx)
		states = append(states, now)
		Expect(a.violations(now)).To(BeEmpty(), func() string { return name + "\n" + a.describe(now) })
		return now
	}

	held, fault := newGate(x.n, x.hold)
	var once sync.Once
	release := func() { once.Do(func() { close(held.open) }) }
	defer release()
	a.sides[0].proxy.Reset(a.disturbed(ctx, x.setting, fault))
	defer a.sides[0].proxy.Reset(nil)
	first := a.start(ctx, a.late(x.setting), x.a)
	a.first, a.underWay = first, x.a
	select {
	case <-held.reached:
		reached = true
		step("while " + x.a.name + " is held")
	case answer := <-first:
		first <- answer
	}

	undisturbed := x.event.name == "" // by others than A and B
	if reached {
		undisturbed = a.cross(ctx, x, release, step) && undisturbed
	}
	answer := <-first
	a.underWay = move{}
	a.answered(x.a, answer)
	now := step("after " + x.a.name)
	if undisturbed {
		a.heldOnce(x.a, states, answer, now)
		Eventually(func() []string { return a.contradictions(a.now(ctx)) }).WithContext(ctx).WithTimeout(10*time.Second).
			WithPolling(30*time.Millisecond).Should(BeEmpty(), "once both have ended")
		if x.b.harmless && reached {
			a.asAlone(x, states[0], now, answer)
		}
	}
	if reached {
		a.repeat(ctx, x, step)
	}
	if x.event.over != nil {
		x.event.over(ctx, a)
	}
	if left := a.clear(ctx); len(left) > 0 {
		now := a.now(ctx)
		Expect(left).To(BeEmpty(), func() string { return "what the inverse calls and garbage collection leave\n" + a.describe(now) })
	}
	return reached
}

// cross runs the second call to its end, and lets the cluster event happen, while the first call is held; then that goes on.
// alone is false if the second call had to wait for the first one.
func (a *arena) cross(ctx context.Context, x interleaving, release func(), step func(string) state) (alone bool) {
	a.sides[1].proxy.Reset(a.quick(ctx, x.setting))
	second := a.second(ctx, x)
	var answer director.Response
	alone = true
	select {
	case answer = <-second:
	case <-time.After(waitForHeld):
		alone = false
		release()
		answer = <-second
	}
	a.answered(x.b, answer)
	now := step("after " + x.b.name)
	if alone && x.event.name == "" {
		Expect(x.b.holds(a, now, answer)).To(BeEmpty(), func() string {
			return fmt.Sprintf("%s answered %s, while %s was held\n%s", x.b.name, answer.Result, x.a.name, a.describe(now))
		})
	}
	if x.event.name != "" {
		x.event.happens(ctx, a)
		step("after " + x.event.name)
	}
	release()
	return alone
}

// repeat makes both calls once more.
func (a *arena) repeat(ctx context.Context, x interleaving, step func(string) state) {
	for _, again := range []move{x.a, x.b} {
		a.sides[1].proxy.Reset(a.quick(ctx, x.setting))
		response := <-a.start(ctx, a.sides[1].Director, again)
		a.answered(again, response)
		step("after " + again.name + " again")
	}
}

// second starts the second call. If there is a third one, that runs first, while the second one is held.
func (a *arena) second(ctx context.Context, x interleaving) chan director.Response {
	if x.c == nil {
		return a.start(ctx, a.sides[1].Director, x.b)
	}
	held, fault := newGate(x.m, heldBefore)
	defer close(held.open)
	a.sides[1].proxy.Reset(fault)
	second := a.start(ctx, a.sides[1].Director, x.b)
	select {
	case <-held.reached:
	case answer := <-second:
		second <- answer
	}
	third := a.start(ctx, a.sides[2].Director, *x.c)
	select {
	case answer := <-third:
		a.answered(*x.c, answer)
	case <-time.After(waitForHeld):
	}
	return second
}

// late is the director of the first call: impatient in a slow setting.
func (a *arena) late(in setting) *director.Director {
	if !in.slow {
		return a.sides[0].Director
	}
	w := a.world
	w.Director = a.sides[0].Director
	timeouts := maps.Clone(arenaTimeouts)
	timeouts["attach_disk"], timeouts["update_disk"] = "1500ms", "2500ms"
	return w.withTimeouts(timeouts)
}

const slowPods = "test/hold"

// disturbed is the fault of the first call's requests, with what the setting adds.
func (a *arena) disturbed(ctx context.Context, in setting, fault apiproxy.Fault) apiproxy.Fault {
	var once sync.Once
	return func(n int, w http.ResponseWriter, r *http.Request, next http.Handler) {
		annotations := map[string]string{"test/reboots": "yes"}
		if in.slow {
			annotations[slowPods] = "yes"
		}
		annotateNewPod(r, annotations)
		if in.watched != nil && r.URL.Query().Get("watch") != "" {
			once.Do(func() { in.watched(ctx, a) })
		}
		fault(n, w, r, next)
	}
}

// quick lets what the first call has created come up, and lets copies succeed, when the second one begins to watch.
func (a *arena) quick(ctx context.Context, in setting) apiproxy.Fault {
	return func(_ int, w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.URL.Query().Get("watch") != "" && strings.HasSuffix(r.URL.Path, "/pods") {
			if in.slow {
				_ = a.annotate(ctx, a.disk+"-attachment", slowPods, nil)
			}
			_ = a.annotate(ctx, a.disk+"-attachment", "test/exit", new("0"))
		}
		next.ServeHTTP(w, r)
	}
}

// outcomes are the types of errors with which first calls end alone, by setting and call; "" stands for success.
var outcomes = map[string]string{}

// alone makes the first call without a second one, and notes how it ends. What it leaves when it fails is nothing.
func (a *arena) alone(ctx context.Context, x interleaving) {
	about := x.setting.name + ": " + x.a.name
	if _, known := outcomes[about]; known || !x.b.harmless {
		return
	}
	a.settle(ctx)
	x.setting.begin(ctx, a)
	before := a.now(ctx)
	a.sides[0].proxy.Reset(a.disturbed(ctx, x.setting, func(_ int, w http.ResponseWriter, r *http.Request, next http.Handler) { next.ServeHTTP(w, r) }))
	answer := <-a.start(ctx, a.late(x.setting), x.a)
	a.sides[0].proxy.Reset(nil)
	outcomes[about] = errorType(answer)
	if answer.Error != nil {
		now := a.now(ctx)
		Expect(now.owner(a.disk)).To(Equal(before.owner(a.disk)), "%s has failed alone: %v\n%s", x.a.name, answer.Error, a.describe(now))
	}
	Expect(a.clear(ctx)).To(BeEmpty())
}

func errorType(answer director.Response) string {
	if answer.Error == nil {
		return ""
	}
	return answer.Error.Type
}

// asAlone fails unless A has ended beside a harmless call as it does alone. When it fails it leaves the owner of the disk as it was.
func (a *arena) asAlone(x interleaving, before, now state, answer director.Response) {
	Expect(errorType(answer)).To(Equal(outcomes[x.setting.name+": "+x.a.name]), "%s beside %s: %v", x.a.name, x.b.name, answer.Error)
	if answer.Error != nil {
		Expect(now.owner(a.disk)).To(Equal(before.owner(a.disk)), "%s has failed: %v\n%s", x.a.name, answer.Error, a.describe(now))
	}
}

// start makes a call, and hands over its response.
func (a *arena) start(ctx context.Context, by *director.Director, made move) chan director.Response {
	arguments := made.call(a)
	a.forget(made)
	method, _ := arguments[0].(string)
	ended := make(chan director.Response, 1)
	go func() {
		if made.runs != nil {
			ended <- made.runs(ctx, a)
			return
		}
		response, err := by.Call(ctx, method, arguments[1:]...)
		if err != nil {
			response.Error = &director.Error{Type: "the process", Message: err.Error()}
		}
		ended <- response
	}()
	return ended
}

// answered notes what a call has answered: which disks the director knows since.
func (a *arena) answered(made move, answer director.Response) {
	if answer.Error != nil {
		Expect(answer.Error.Type).To(HavePrefix("Bosh::Clouds::"), "%s: %s", made.name, answer.Stderr)
	}
	if method, _ := made.call(a)[0].(string); method == "update_disk" && answer.Error == nil {
		if successor := answer.Text(); successor != a.disk {
			a.successor = successor
			a.kept = append(a.kept, successor)
			a.forget(a.underWay)
			if a.abandoned { // meanwhile, by a call that has succeeded
				a.forget(attaching(vmOne))
			}
		}
	}
	if answer.Error == nil {
		a.forget(made)
		a.abandoned = a.abandoned || made.forgets != nil && a.underWay.name != ""
	}
}

// forget notes which disks no call has to keep any more.
func (a *arena) forget(made move) {
	a.deleted = a.deleted || made.deletes
	if made.forgets != nil {
		forgotten := made.forgets(a)
		a.kept = slices.DeleteFunc(a.kept, func(disk string) bool { return slices.Contains(forgotten, disk) })
	}
}

// heldOnce fails when the answer contradicts the cluster at all moments between its request and its answer that were looked at.
func (a *arena) heldOnce(made move, states []state, answer director.Response, now state) {
	var why string
	for _, each := range states {
		if why = made.holds(a, each, answer); why == "" {
			return
		}
	}
	Expect(why).To(BeEmpty(), func() string {
		return fmt.Sprintf("%s answered %s\n%s", made.name, answer.Result, a.describe(now))
	})
}

var _ = ReportAfterSuite("interleavings", func(report Report) {
	var all explorerRun
	for _, spec := range report.SpecReports {
		for _, entry := range spec.ReportEntries {
			if entry.Name != entryOfExplorer {
				continue
			}
			run, here := entry.GetRawValue().(explorerRun)
			if !here { // it comes from another process
				Expect(json.Unmarshal([]byte(entry.Value.AsJSON), &run)).To(Succeed())
			}
			all.Pairs, all.Interleavings, all.Held = all.Pairs+run.Pairs, all.Interleavings+run.Interleavings, all.Held+run.Held
		}
	}
	if all.Interleavings > 0 {
		fmt.Fprintf(os.Stdout, "\npairs: %d  interleavings: %d  held: %d (seed %d)\n", all.Pairs, all.Interleavings, all.Held, report.SuiteConfig.RandomSeed)
	}
})

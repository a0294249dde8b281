package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/test/apiproxy"
	"bosh-kubernetes-cpi/test/clock"
	"bosh-kubernetes-cpi/test/director"
	"bosh-kubernetes-cpi/test/embedded"
)

// outage is what all calls that are under way meet together.
type outage struct {
	name     string
	duration time.Duration
	// prepare is what is so before calls are made, if anything is.
	prepare func(ctx context.Context, of []*scenarioRunner)
	begin   func(of []*scenarioRunner)
	end     func(ctx context.Context)
}

// outages are what a cluster goes through as a whole.
func outages() []outage {
	all := slices.Concat(controlPlaneOutages(), apiServerOutages())
	if clock.Supported {
		all = append(all, clockOutages()...)
	}
	return all
}

func controlPlaneOutages() []outage {
	pauseOutage := func(name string, processes func() []embedded.Process) outage {
		signalAll := func(signal syscall.Signal) {
			for _, process := range processes() {
				Expect(syscall.Kill(process.PID(), signal)).To(Succeed(), process.Name)
			}
		}
		return outage{
			name: name, duration: 10 * time.Second,
			begin: func([]*scenarioRunner) { signalAll(syscall.SIGSTOP) }, end: func(context.Context) { signalAll(syscall.SIGCONT) },
		}
	}
	return []outage{
		pauseOutage("etcd stands still for 10 seconds", func() []embedded.Process { return []embedded.Process{plane.Process("etcd")} }),
		pauseOutage("scheduler, controllers and nodes stand still for 10 seconds", func() []embedded.Process {
			return []embedded.Process{plane.Process("kube-scheduler"), plane.Process("kube-controller-manager"), kwok}
		}),
		{
			name: "the API server is killed, and starts again after 5 seconds", duration: 5 * time.Second,
			begin: func([]*scenarioRunner) { Expect(plane.Process("kube-apiserver").Kill()).To(Succeed()) },
			end:   func(ctx context.Context) { Expect(plane.Start(ctx)).To(Succeed()) },
		},
		{
			name: "the network to the API server is cut for 20 seconds", duration: 20 * time.Second,
			begin: func(runners []*scenarioRunner) {
				for _, runner := range runners {
					runner.stage.proxy.BreakConnections()
				}
			},
			end: func(context.Context) {},
		},
	}
}

// apiServerOutages befall one of two API servers, to which requests go in turns.
func apiServerOutages() []outage {
	var second embedded.Process
	var port int
	start := func(ctx context.Context) {
		var err error
		second, err = plane.StartSecondAPIServer(ctx, port)
		Expect(err).NotTo(HaveOccurred(), second.LastLines)
	}
	startPair := func(ctx context.Context, runners []*scenarioRunner) {
		var err error
		port, err = embedded.FreePort()
		Expect(err).NotTo(HaveOccurred())
		start(ctx)
		DeferCleanup(func() { Expect(second.Kill()).To(Succeed()) })
		for _, runner := range runners {
			runner.stage.proxy.SetBackendPorts(plane.APIPort, port)
			DeferCleanup(func() { runner.stage.proxy.SetBackendPorts(plane.APIPort) })
		}
	}
	signal := func(signal syscall.Signal) { Expect(syscall.Kill(second.PID(), signal)).To(Succeed()) }
	return []outage{
		{
			name: "one of two API servers stands still for 10 seconds, and is behind after that", duration: 10 * time.Second, prepare: startPair,
			begin: func([]*scenarioRunner) { signal(syscall.SIGSTOP) }, end: func(context.Context) { signal(syscall.SIGCONT) },
		},
		{
			name:     "one of two API servers is killed, and a load balancer goes on to send it requests for 10 seconds",
			duration: 10 * time.Second, prepare: startPair,
			begin: func([]*scenarioRunner) { Expect(second.Kill()).To(Succeed()) }, end: start,
		},
	}
}

// clockOutages befall the machine that the CPI runs on.
func clockOutages() []outage {
	var fakeClock *clock.Clock
	set := func(offset time.Duration) { Expect(fakeClock.Set(offset)).To(Succeed()) }
	clockJump := func(direction string, offset time.Duration) outage {
		return outage{
			name: "the clock of the CPI's machine jumps a day " + direction + ", and is set right after 5 seconds", duration: 5 * time.Second,
			prepare: func(_ context.Context, runners []*scenarioRunner) {
				var err error
				fakeClock, err = clock.New(GinkgoT().TempDir())
				Expect(err).NotTo(HaveOccurred())
				for _, runner := range runners {
					original := runner.stage.Director
					runner.stage.Director = original.WithWrapper(fakeClock.CommandPrefix()...)
					DeferCleanup(func() { runner.stage.Director = original })
				}
			},
			begin: func([]*scenarioRunner) { set(offset) },
			end:   func(context.Context) { set(0) },
		}
	}
	return []outage{clockJump("ahead", 24*time.Hour), clockJump("back", -24*time.Hour)}
}

// The request's is the default.
var outageTimeouts = map[string]any{
	"create_vm": "3m", "attach_disk": "3m", "detach_disk": "3m", "delete_vm": "3m", "update_disk": "3m", "other": "3m", "request": "30s",
}

var _ = Describe("All calls at once, when in their middle", Label("faults"), Ordered, Serial, func() {
	if faultsPattern == "" {
		return // it takes minutes
	}
	var runners []*scenarioRunner
	BeforeAll(func(ctx context.Context) {
		for _, sc := range scenarios() {
			if !sc.serial {
				runners = append(runners, newScenarioRunner(ctx, sc))
			}
		}
	}, NodeTimeout(20*time.Minute))

	for _, event := range outages() {
		It(event.name+", can be repeated and undone, and nothing else changes", func(ctx context.Context) {
			chance := rand.New(rand.NewPCG(uint64(GinkgoRandomSeed()), 0)) //nolint:gosec // chance, not a secret
			unaffected := runOutage(ctx, event, runners, chance)
			AddReportEntry(fmt.Sprintf("%d of %d calls went on: %s", unaffected, len(runners), event.name))
		}, NodeTimeout(10*time.Minute))
	}
})

// scenarioRunner has a stage and a proxy of its own for one scenario.
type scenarioRunner struct {
	scenario
	stage    *scenarioEnv
	expected string
	requests []string

	arguments []any
	response  director.Response
	err       error
}

func newScenarioRunner(ctx context.Context, sc scenario) *scenarioRunner {
	GinkgoHelper()
	proxy, err := apiproxy.NewStrict(plane.Kubeconfig("admin"))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(proxy.Close)
	r := &scenarioRunner{scenario: sc, stage: newScenarioEnvWithProxy(ctx, proxy, sc)}
	r.stage.Director = r.stage.directorWithTimeouts(outageTimeouts)
	r.expected, r.requests = r.stage.callWithoutFault(ctx, sc)
	return r
}

// runOutage has all calls meet the outage, each while it makes a request that chance draws. It returns how many went on as if
// nothing had been.
func runOutage(ctx context.Context, event outage, runners []*scenarioRunner, chance *rand.Rand) (unaffected int) {
	GinkgoHelper()
	if event.prepare != nil {
		event.prepare(ctx, runners)
	}
	for _, r := range runners {
		r.stage.runBeforeCall(ctx, r.scenario)
		r.arguments = r.call(r.stage)
	}
	var calls, underWay sync.WaitGroup
	outageStarted := make(chan struct{})
	underWay.Add(len(runners))
	for _, r := range runners {
		arrived := sync.OnceFunc(underWay.Done)
		n := 1 + chance.IntN(len(r.requests))
		r.stage.proxy.Reset(holdUntil(func(i int, _ *http.Request) bool { return i == n }, arrived, outageStarted))
		calls.Go(func() {
			defer arrived() // a call may make fewer requests than it did before
			method, _ := r.arguments[0].(string)
			r.response, r.err = r.stage.Call(ctx, method, r.arguments[1:]...)
		})
	}
	underWay.Wait()
	event.begin(runners)
	close(outageStarted)
	select {
	case <-time.After(event.duration):
	case <-ctx.Done():
	}
	event.end(ctx)
	for _, r := range runners {
		r.stage.proxy.Reset(nil)
	}
	defer restartExitedProcesses(ctx)()
	calls.Wait()
	for _, r := range runners {
		if r.verifyRecovery(ctx) {
			unaffected++
		}
	}
	return unaffected
}

// restartExitedProcesses has the cluster's processes run until the function that it returns is called, as a kubelet does: a scheduler
// that has missed what became of its Pods ends by itself.
func restartExitedProcesses(ctx context.Context) (stop func()) {
	loopCtx, cancel := context.WithCancel(ctx)
	var restarts sync.WaitGroup
	restarts.Go(func() {
		defer GinkgoRecover()
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		for {
			select {
			case <-loopCtx.Done():
				return
			case <-ticker.C:
				if err := plane.Start(loopCtx); loopCtx.Err() == nil {
					Expect(err).NotTo(HaveOccurred())
				}
				Expect(kwok.Start()).To(Succeed())
			}
		}
	})
	return func() {
		cancel()
		restarts.Wait()
	}
}

// holdUntil keeps the requests of a kind until they are allowed, and tells of each.
func holdUntil(matches func(i int, r *http.Request) bool, arrived func(), allowed <-chan struct{}) apiproxy.Fault {
	return func(i int, w http.ResponseWriter, r *http.Request, next http.Handler) {
		if matches(i, r) {
			arrived()
			<-allowed
		}
		next.ServeHTTP(w, r)
	}
}

// verifyRecovery repeats the call, undoes it, and reports whether it had gone on by itself.
func (r *scenarioRunner) verifyRecovery(ctx context.Context) bool {
	GinkgoHelper()
	Expect(r.err).NotTo(HaveOccurred(), r.name)
	r.stage.expectNoSecrets(r.response)
	tc := testCase{scenario: r.scenario}
	if r.response.Error != nil {
		r.stage.expectFaultedResponse(tc, r.response, r.expected)
		fmt.Fprintf(GinkgoWriter, "%s: %s: %s\n", r.name, r.response.Error.Type, r.response.Error.Message)
	} else {
		Expect(normalizedResult(r.response)).To(Equal(r.expected), r.name)
	}
	if r.response.Error != nil || !r.notIdempotent {
		r.stage.expectRepeatSucceeds(ctx, tc, r.arguments, r.expected)
	}
	r.stage.undoAndVerify(ctx, r.scenario)
	return r.response.Error == nil
}

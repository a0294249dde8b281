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

	"bosh-kubernetes-cpi/test/chaos"
	"bosh-kubernetes-cpi/test/harness/apiproxy"
	"bosh-kubernetes-cpi/test/harness/director"
	"bosh-kubernetes-cpi/test/harness/embedded"
)

// outage is a fault of the cluster that affects all running calls at the same time.
type outage struct {
	name     string
	duration time.Duration
	// prepare sets up the outage before any call starts. It can be nil.
	prepare func(ctx context.Context, runners []*scenarioRunner)
	begin   func(runners []*scenarioRunner)
	end     func(ctx context.Context)
}

// controlPlaneOutages returns outages of etcd, the controllers, the nodes and the single API server.
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
		pauseOutage("etcd is paused for 10 seconds", func() []embedded.Process { return []embedded.Process{plane.Process("etcd")} }),
		pauseOutage("the scheduler, the controllers and the nodes are paused for 10 seconds", func() []embedded.Process {
			return []embedded.Process{plane.Process("kube-scheduler"), plane.Process("kube-controller-manager"), kwok}
		}),
		{
			name: "the API server is killed, and restarted after 5 seconds", duration: 5 * time.Second,
			begin: func([]*scenarioRunner) { Expect(plane.Process("kube-apiserver").Kill()).To(Succeed()) },
			end:   func(ctx context.Context) { Expect(plane.Start(ctx)).To(Succeed()) },
		},
		{
			name: "the network to the API server is interrupted for 20 seconds", duration: 20 * time.Second,
			begin: func(runners []*scenarioRunner) {
				for _, runner := range runners {
					runner.env.proxy.BreakConnections()
				}
			},
			end: func(context.Context) {},
		},
	}
}

// apiServerOutages returns outages of one of two API servers. The proxy sends requests to both of them alternately.
func apiServerOutages() []outage {
	var second embedded.Process
	var port int
	start := func(ctx context.Context) {
		var err error
		second, err = plane.StartSecondAPIServer(ctx, port)
		Expect(err).NotTo(HaveOccurred(), second.LastLines)
	}
	startSecondServer := func(ctx context.Context, runners []*scenarioRunner) {
		var err error
		port, err = embedded.FreePort()
		Expect(err).NotTo(HaveOccurred())
		start(ctx)
		DeferCleanup(func() { Expect(second.Kill()).To(Succeed()) })
		for _, runner := range runners {
			runner.env.proxy.SetBackendPorts(plane.APIPort, port)
			DeferCleanup(func() { runner.env.proxy.SetBackendPorts(plane.APIPort) })
		}
	}
	signalSecond := func(signal syscall.Signal) { Expect(syscall.Kill(second.PID(), signal)).To(Succeed()) }
	return []outage{
		{
			name: "one of two API servers is paused for 10 seconds, and then has stale data", duration: 10 * time.Second, prepare: startSecondServer,
			begin: func([]*scenarioRunner) { signalSecond(syscall.SIGSTOP) }, end: func(context.Context) { signalSecond(syscall.SIGCONT) },
		},
		{
			name:     "one of two API servers is killed, and a load balancer still sends requests to it for 10 seconds",
			duration: 10 * time.Second, prepare: startSecondServer,
			begin: func([]*scenarioRunner) { Expect(second.Kill()).To(Succeed()) }, end: start,
		},
	}
}

// outageTimeouts are long enough for all outages. The timeout of a request is the default.
var outageTimeouts = map[string]any{
	"create_vm": "3m", "attach_disk": "3m", "detach_disk": "3m", "delete_vm": "3m", "other": "3m", "request": "30s",
}

var _ = Describe("All calls, concurrently during an outage in which", Label("faults"), Ordered, Serial, func() {
	if chaos.Pattern == "" {
		return // it takes minutes
	}
	var runners []*scenarioRunner
	BeforeAll(func(ctx context.Context) {
		for _, sc := range scenarios() {
			runners = append(runners, newScenarioRunner(ctx, sc))
		}
	}, NodeTimeout(20*time.Minute))

	for _, event := range slices.Concat(controlPlaneOutages(), apiServerOutages()) {
		It(event.name+", can be retried and undone, and nothing else changes", func(ctx context.Context) {
			chance := chaos.NewRandom(chaos.Seed(), 0)
			unaffected := runOutage(ctx, event, runners, chance)
			chaos.AddToReport("calls during outages", chaos.Cases{Group: event.name, Tried: len(runners), Passed: unaffected})
		}, NodeTimeout(10*time.Minute))
	}
})

// scenarioRunner runs the call of one scenario, in an environment with a separate proxy.
type scenarioRunner struct {
	scenario
	env      *scenarioEnv
	expected string
	requests []string

	arguments []any
	gate      *apiproxy.Gate // holds the call until the outage begins
	returned  chan struct{}  // closed when the call returned
	response  director.Response
	err       error
}

// newScenarioRunner prepares the environment of the scenario, and makes its call once without a fault.
func newScenarioRunner(ctx context.Context, sc scenario) *scenarioRunner {
	GinkgoHelper()
	proxy, err := apiproxy.NewStrict(plane.Kubeconfig("admin"))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(proxy.Close)
	r := &scenarioRunner{scenario: sc, env: newScenarioEnvWithProxy(ctx, proxy, sc)}
	r.env.Director = r.env.directorWithTimeouts(outageTimeouts)
	r.expected, r.requests = r.env.callWithoutFault(ctx, sc)
	return r
}

// start starts the call, which is held at its nth request.
func (r *scenarioRunner) start(ctx context.Context, calls *sync.WaitGroup, n int) {
	r.gate, r.returned = apiproxy.NewGate(), make(chan struct{})
	r.env.proxy.Reset(r.gate.Hold(apiproxy.HeldBefore, func(i int, _ *http.Request) bool { return i == n }))
	calls.Go(func() {
		defer close(r.returned)
		method, _ := r.arguments[0].(string)
		r.response, r.err = r.env.Call(ctx, method, r.arguments[1:]...)
	})
}

// runOutage makes the calls of all runners, and holds each call at a random request until the outage begins. It returns the number of calls
// that succeeded without a retry.
func runOutage(ctx context.Context, event outage, runners []*scenarioRunner, chance *rand.Rand) (unaffected int) {
	GinkgoHelper()
	if event.prepare != nil {
		event.prepare(ctx, runners)
	}
	for _, r := range runners {
		r.env.runBeforeCall(ctx, r.scenario)
		r.arguments = r.call(r.env)
	}
	var calls sync.WaitGroup
	for _, r := range runners {
		r.start(ctx, &calls, 1+chance.IntN(len(r.requests)))
	}
	for _, r := range runners {
		select {
		case <-r.gate.Reached:
		case <-r.returned: // a call may send fewer requests than without the outage
		}
	}
	event.begin(runners)
	for _, r := range runners {
		r.gate.Open()
	}
	select {
	case <-time.After(event.duration):
	case <-ctx.Done():
	}
	event.end(ctx)
	for _, r := range runners {
		r.env.proxy.Reset(nil)
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

// restartExitedProcesses restarts exited processes of the cluster, as a kubelet would, until stop is called. For example, a scheduler exits
// if it missed changes of Pods that it assigned to nodes.
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

// verifyRecovery retries the call, undoes it, and reports whether it succeeded without a retry.
func (r *scenarioRunner) verifyRecovery(ctx context.Context) bool {
	GinkgoHelper()
	Expect(r.err).NotTo(HaveOccurred(), r.name)
	r.env.expectNoSecrets(r.response)
	tc := testCase{scenario: r.scenario}
	if r.response.Error != nil {
		r.env.expectFaultedResponse(tc, r.response, r.expected)
		fmt.Fprintf(GinkgoWriter, "%s: %s: %s\n", r.name, r.response.Error.Type, r.response.Error.Message)
	} else {
		Expect(normalizedResult(r.response)).To(Equal(r.expected), r.name)
	}
	if r.response.Error != nil || !r.notIdempotent {
		r.env.expectRetrySucceeds(ctx, tc, r.arguments, r.expected)
	}
	r.env.undoAndVerify(ctx, r.scenario)
	return r.response.Error == nil
}

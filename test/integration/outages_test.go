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
	name  string
	lasts time.Duration
	// before is what is so before calls are made, if anything is.
	before func(ctx context.Context, of []*player)
	begin  func(of []*player)
	end    func(ctx context.Context)
}

// outages are what a cluster goes through as a whole.
func outages() []outage {
	all := slices.Concat(outagesOfAll(), outagesOfOneServer())
	if clock.Works {
		all = append(all, outagesOfClocks()...)
	}
	return all
}

func outagesOfAll() []outage {
	frozen := func(name string, processes func() []embedded.Process) outage {
		each := func(signal syscall.Signal) {
			for _, process := range processes() {
				Expect(syscall.Kill(process.PID(), signal)).To(Succeed(), process.Name)
			}
		}
		return outage{
			name: name, lasts: 10 * time.Second,
			begin: func([]*player) { each(syscall.SIGSTOP) }, end: func(context.Context) { each(syscall.SIGCONT) },
		}
	}
	return []outage{
		frozen("etcd stands still for 10 seconds", func() []embedded.Process { return []embedded.Process{plane.Process("etcd")} }),
		frozen("scheduler, controllers and nodes stand still for 10 seconds", func() []embedded.Process {
			return []embedded.Process{plane.Process("kube-scheduler"), plane.Process("kube-controller-manager"), kwok}
		}),
		{
			name: "the API server is killed, and starts again after 5 seconds", lasts: 5 * time.Second,
			begin: func([]*player) { Expect(plane.Process("kube-apiserver").Kill()).To(Succeed()) },
			end:   func(ctx context.Context) { Expect(plane.Start(ctx)).To(Succeed()) },
		},
		{
			name: "the network to the API server is cut for 20 seconds", lasts: 20 * time.Second,
			begin: func(of []*player) {
				for _, each := range of {
					each.stage.proxy.Cut()
				}
			},
			end: func(context.Context) {},
		},
	}
}

// outagesOfOneServer befall one of two API servers, to which requests go in turns.
func outagesOfOneServer() []outage {
	var second embedded.Process
	var port int
	start := func(ctx context.Context) {
		var err error
		second, err = plane.StartSecondAPIServer(ctx, port)
		Expect(err).NotTo(HaveOccurred(), second.LastLines)
	}
	pair := func(ctx context.Context, of []*player) {
		var err error
		port, err = embedded.FreePort()
		Expect(err).NotTo(HaveOccurred())
		start(ctx)
		DeferCleanup(func() { Expect(second.Kill()).To(Succeed()) })
		for _, each := range of {
			each.stage.proxy.TakeTurns(plane.APIPort, port)
			DeferCleanup(func() { each.stage.proxy.TakeTurns(plane.APIPort) })
		}
	}
	signal := func(signal syscall.Signal) { Expect(syscall.Kill(second.PID(), signal)).To(Succeed()) }
	return []outage{
		{
			name: "one of two API servers stands still for 10 seconds, and is behind after that", lasts: 10 * time.Second, before: pair,
			begin: func([]*player) { signal(syscall.SIGSTOP) }, end: func(context.Context) { signal(syscall.SIGCONT) },
		},
		{
			name:  "one of two API servers is killed, and a load balancer goes on to send it requests for 10 seconds",
			lasts: 10 * time.Second, before: pair,
			begin: func([]*player) { Expect(second.Kill()).To(Succeed()) }, end: start,
		},
	}
}

// outagesOfClocks befall the machine that the CPI runs on.
func outagesOfClocks() []outage {
	var its *clock.Clock
	set := func(ahead time.Duration) { Expect(its.Set(ahead)).To(Succeed()) }
	jumps := func(where string, ahead time.Duration) outage {
		return outage{
			name: "the clock of the CPI's machine jumps a day " + where + ", and is set right after 5 seconds", lasts: 5 * time.Second,
			before: func(_ context.Context, of []*player) {
				var err error
				its, err = clock.New(GinkgoT().TempDir())
				Expect(err).NotTo(HaveOccurred())
				for _, each := range of {
					by := each.stage.Director
					each.stage.Director = by.Under(its.Runs()...)
					DeferCleanup(func() { each.stage.Director = by })
				}
			},
			begin: func([]*player) { set(ahead) },
			end:   func(context.Context) { set(0) },
		}
	}
	return []outage{jumps("ahead", 24*time.Hour), jumps("back", -24*time.Hour)}
}

// The request's is the default.
var outageTimeouts = map[string]any{
	"create_vm": "3m", "attach_disk": "3m", "detach_disk": "3m", "delete_vm": "3m", "update_disk": "3m", "other": "3m", "request": "30s",
}

var _ = Describe("All calls at once, when in their middle", Label("faults"), Ordered, Serial, func() {
	if wantedFaults == "" {
		return // it takes minutes
	}
	var players []*player
	BeforeAll(func(ctx context.Context) {
		for _, played := range scenarios() {
			if !played.alone {
				players = append(players, newPlayer(ctx, played))
			}
		}
	}, NodeTimeout(20*time.Minute))

	for _, each := range outages() {
		It(each.name+", can be repeated and undone, and nothing else changes", func(ctx context.Context) {
			chance := rand.New(rand.NewPCG(uint64(GinkgoRandomSeed()), 0)) //nolint:gosec // chance, not a secret
			endured := suffer(ctx, each, players, chance)
			AddReportEntry(fmt.Sprintf("%d of %d calls went on: %s", endured, len(players), each.name))
		}, NodeTimeout(10*time.Minute))
	}
})

// player has a stage and a proxy of its own for one scenario.
type player struct {
	scenario
	stage       *stage
	undisturbed string
	requests    []string

	arguments []any
	response  director.Response
	err       error
}

func newPlayer(ctx context.Context, played scenario) *player {
	GinkgoHelper()
	proxy, err := apiproxy.NewStrict(plane.Kubeconfig("admin"))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(proxy.Close)
	p := &player{scenario: played, stage: newStageBehind(ctx, proxy, played)}
	p.stage.Director = p.stage.withTimeouts(outageTimeouts)
	p.undisturbed, p.requests = p.stage.undisturbed(ctx, played)
	return p
}

// suffer has all calls meet the outage, each while it makes a request that chance draws. It returns how many went on as if
// nothing had been.
func suffer(ctx context.Context, from outage, players []*player, chance *rand.Rand) (endured int) {
	GinkgoHelper()
	if from.before != nil {
		from.before(ctx, players)
	}
	for _, p := range players {
		p.stage.prepare(ctx, p.scenario)
		p.arguments = p.call(p.stage)
	}
	var made, underWay sync.WaitGroup
	begun := make(chan struct{})
	underWay.Add(len(players))
	for _, p := range players {
		arrived := sync.OnceFunc(underWay.Done)
		n := 1 + chance.IntN(len(p.requests))
		p.stage.proxy.Reset(holding(func(i int, _ *http.Request) bool { return i == n }, arrived, begun))
		made.Go(func() {
			defer arrived() // a call may make fewer requests than it did before
			method, _ := p.arguments[0].(string)
			p.response, p.err = p.stage.Call(ctx, method, p.arguments[1:]...)
		})
	}
	underWay.Wait()
	from.begin(players)
	close(begun)
	select {
	case <-time.After(from.lasts):
	case <-ctx.Done():
	}
	from.end(ctx)
	for _, p := range players {
		p.stage.proxy.Reset(nil)
	}
	defer restartingWhatEnds(ctx)()
	made.Wait()
	for _, p := range players {
		if p.recovers(ctx) {
			endured++
		}
	}
	return endured
}

// restartingWhatEnds has the cluster's processes run until the function that it returns is called, as a kubelet does: a scheduler
// that has missed what became of its Pods ends by itself.
func restartingWhatEnds(ctx context.Context) (stop func()) {
	running, cancel := context.WithCancel(ctx)
	var restarts sync.WaitGroup
	restarts.Go(func() {
		defer GinkgoRecover()
		every := time.NewTicker(time.Second)
		defer every.Stop()
		for {
			select {
			case <-running.Done():
				return
			case <-every.C:
				if err := plane.Start(running); running.Err() == nil {
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

// holding keeps the requests of a kind until they are allowed, and tells of each.
func holding(which func(i int, r *http.Request) bool, arrived func(), allowed <-chan struct{}) apiproxy.Fault {
	return func(i int, w http.ResponseWriter, r *http.Request, next http.Handler) {
		if which(i, r) {
			arrived()
			<-allowed
		}
		next.ServeHTTP(w, r)
	}
}

// recovers repeats the call, undoes it, and reports whether it had gone on by itself.
func (p *player) recovers(ctx context.Context) bool {
	GinkgoHelper()
	Expect(p.err).NotTo(HaveOccurred(), p.name)
	p.stage.keepsSecrets(p.response)
	here := cell{scenario: p.scenario}
	if p.response.Error != nil {
		p.stage.bears(here, p.response, p.undisturbed)
		fmt.Fprintf(GinkgoWriter, "%s: %s: %s\n", p.name, p.response.Error.Type, p.response.Error.Message)
	} else {
		Expect(answer(p.response)).To(Equal(p.undisturbed), p.name)
	}
	if p.response.Error != nil || !p.once {
		p.stage.repeatsWell(ctx, here, p.arguments, p.undisturbed)
	}
	p.stage.restored(ctx, p.scenario)
	return p.response.Error == nil
}

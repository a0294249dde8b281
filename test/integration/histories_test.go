package integration

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/test/apiproxy"
	"bosh-kubernetes-cpi/test/director"
	"bosh-kubernetes-cpi/test/history"
)

// How a history is, unless the environment says otherwise.
const (
	historyCalls    = 300
	historyWorkers  = 8
	historyDisks    = 6
	historyMachines = 4
	historySizeMiB  = 64
)

var _ = Describe("Calls that cross each other, some of them twice, some of them killed", Label("faults"), func() {
	It("have outcomes that they can have one after another", func(ctx context.Context) {
		calls, seed := numberFrom("HISTORY_CALLS", historyCalls), numberFrom("HISTORY_SEED", int(GinkgoRandomSeed()))
		GinkgoWriter.Println("HISTORY_SEED", seed)
		chronicle := newChronicle(ctx)
		chronicle.run(ctx, uint64(seed), calls) //nolint:gosec // a seed is no amount
		told := history.Counts(chronicle.calls)
		GinkgoWriter.Print(told)
		AddReportEntry(fmt.Sprintf("%d calls, seed %d", len(chronicle.calls), seed), told)
		impossible, undecided := chronicle.judged()
		AddReportEntry(fmt.Sprintf("%d of %d histories undecided", undecided, len(history.About(chronicle.calls))))
		if len(impossible) > 0 {
			Fail("these calls cannot have had these outcomes, in any order:\n" + strings.Join(impossible, "\n"))
		}
		AddReportEntry(fmt.Sprintf("%d attachments deleted by others", chronicle.taken.Load()))
		Expect(chronicle.taken.Load()).To(BeNumerically(">", 0))
		Expect(len(chronicle.calls)).To(BeNumerically(">=", calls))
		Expect(told).To(And(ContainSubstring("attach_disk well"), ContainSubstring("detach_disk well"), ContainSubstring("lost")), "nothing worked, or nothing was killed")
	})
})

func numberFrom(variable string, otherwise int) int {
	GinkgoHelper()
	given, is := os.LookupEnv(variable)
	if !is {
		return otherwise
	}
	number, err := strconv.Atoi(given)
	Expect(err).NotTo(HaveOccurred(), variable)
	return number
}

// chronicle makes calls at random, and writes down what became of them.
type chronicle struct {
	world
	vms   []string
	began time.Time

	mutex    sync.Mutex
	disks    []string // those that calls are about now
	machines []string // their agents' names
	calls    []history.Call
	made     int
	taken    atomic.Int64 // attachments that others have deleted
}

func newChronicle(ctx context.Context) *chronicle {
	GinkgoHelper()
	c := &chronicle{world: newWorld(ctx), began: time.Now()}
	c.Director = c.withTimeouts(map[string]any{"create_vm": "10s", "attach_disk": "10s", "detach_disk": "10s", "delete_vm": "10s", "other": "10s", "request": "5s"})
	c.vms = []string{c.createVM(ctx, "first"), c.createVM(ctx, "second")}
	for range historyDisks {
		c.disks = append(c.disks, c.growing(ctx))
	}
	for range historyMachines {
		c.machines = append(c.machines, c.nextMachine())
	}
	return c
}

// growing makes a disk that can grow, and that any node reaches.
func (c *chronicle) growing(ctx context.Context) string {
	GinkgoHelper()
	properties := map[string]any{"storage_class": "growing", "annotations": map[string]any{"test/driver": "integration.test"}}
	return c.must(ctx, "create_disk", historySizeMiB, properties, nil).Text()
}

func (c *chronicle) nextMachine() string {
	c.made++
	return fmt.Sprintf("m%d", c.made)
}

// Of a thousand requests, as many are disturbed so.
const (
	lostAnswers  = 10 // the API server serves the request, and the connection breaks
	pausedCalls  = 10 // the call stands still before the request
	longestPause = 3 * time.Second
)

// atRandom is the fault model of the explorer, drawn at random: answers are lost, and calls stand still.
func atRandom(seed uint64) apiproxy.Fault {
	var mutex sync.Mutex
	chance := rand.New(rand.NewPCG(seed, math.MaxUint64)) //nolint:gosec // chance, not a secret
	return func(_ int, w http.ResponseWriter, r *http.Request, next http.Handler) {
		mutex.Lock()
		drawn, pause := chance.IntN(1000), time.Duration(chance.Int64N(int64(longestPause)))
		mutex.Unlock()
		switch {
		case drawn < lostAnswers && r.URL.Query().Get("watch") == "":
			next.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		case drawn < lostAnswers+pausedCalls:
			select {
			case <-r.Context().Done():
				return
			case <-time.After(pause):
			}
		}
		next.ServeHTTP(w, r)
	}
}

// takeAttachments deletes the attachment of a disk now and then, as others do, until the context ends.
func (c *chronicle) takeAttachments(ctx context.Context, seed uint64) {
	chance := rand.New(rand.NewPCG(seed, math.MaxUint64-1)) //nolint:gosec // chance, not a secret
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Duration(chance.Int64N(int64(2 * time.Second)))):
		}
		c.mutex.Lock()
		disk := c.disks[chance.IntN(len(c.disks))]
		c.mutex.Unlock()
		if cluster.CoreV1().Pods(c.namespace).Delete(ctx, disk+"-attachment", metav1.DeleteOptions{}) == nil {
			c.taken.Add(1)
		}
	}
}

// run has several workers make as many calls together.
func (c *chronicle) run(ctx context.Context, seed uint64, calls int) {
	c.proxy.Reset(atRandom(seed))
	defer c.proxy.Reset(nil)
	taking, stop := context.WithCancel(ctx)
	defer stop()
	go c.takeAttachments(taking, seed)
	var workers sync.WaitGroup
	for i := range historyWorkers {
		workers.Go(func() {
			defer GinkgoRecover()
			chance := rand.New(rand.NewPCG(seed, uint64(i))) //nolint:gosec // chance, not a secret
			for range calls / historyWorkers {
				c.step(ctx, chance)
			}
		})
	}
	workers.Wait()
}

// step draws a call and makes it, now and then twice at once.
func (c *chronicle) step(ctx context.Context, chance *rand.Rand) {
	drawn := c.draw(chance)
	doomed := func() time.Duration {
		if chance.IntN(10) > 0 {
			return 0
		}
		return time.Duration(1+chance.IntN(1000)) * time.Millisecond
	}
	again, times := doomed(), doomed()
	var both sync.WaitGroup
	if chance.IntN(6) == 0 {
		both.Go(func() { defer GinkgoRecover(); c.make(ctx, drawn, again) })
	}
	c.make(ctx, drawn, times)
	both.Wait()
	if drawn.Method == "delete_disk" || drawn.Method == "delete_vm" {
		c.replace(ctx, drawn.About, chance)
	}
}

// draw says what to call.
func (c *chronicle) draw(chance *rand.Rand) history.Call {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if chance.IntN(5) == 0 {
		method := pick(chance, weighted{{"create_vm", 4}, {"has_vm", 3}, {"set_vm_metadata", 3}, {"delete_vm", 2}})
		return history.Call{Method: method, About: c.machines[chance.IntN(len(c.machines))]}
	}
	drawn := history.Call{About: c.disks[chance.IntN(len(c.disks))], Method: pick(chance, weighted{
		{"attach_disk", 30}, {"detach_disk", 28}, {"get_disks", 12}, {"resize_disk", 10}, {"has_disk", 6}, {"snapshot_disk", 4}, {"set_disk_metadata", 6}, {"delete_disk", 4}})}
	switch drawn.Method {
	case "attach_disk", "detach_disk", "get_disks":
		drawn.VM = c.vms[chance.IntN(len(c.vms))]
	case "resize_disk":
		drawn.SizeMiB = historySizeMiB + 8*chance.IntN(100)
	}
	return drawn
}

// weighted are methods, and how often each is drawn.
type weighted []struct {
	method string
	weight int
}

func pick(chance *rand.Rand, from weighted) string {
	sum := 0
	for _, each := range from {
		sum += each.weight
	}
	drawn := chance.IntN(sum)
	for _, each := range from {
		if drawn -= each.weight; drawn < 0 {
			return each.method
		}
	}
	return from[0].method
}

func (c *chronicle) arguments(call history.Call) []any {
	switch call.Method {
	case "create_vm":
		return []any{call.About, stemcellCID, c.vm, onDynamic(), []string{}, map[string]any{}}
	case "delete_vm", "has_vm":
		return []any{"agent-" + call.About}
	case "set_vm_metadata":
		return []any{"agent-" + call.About, map[string]any{"job": "web"}}
	case "attach_disk", "detach_disk":
		return []any{call.VM, call.About}
	case "get_disks":
		return []any{call.VM}
	case "resize_disk":
		return []any{call.About, call.SizeMiB}
	case "snapshot_disk", "set_disk_metadata":
		return []any{call.About, map[string]any{"job": "web"}}
	default:
		return []any{call.About}
	}
}

// make makes the call, and kills its process after a while unless that is 0.
func (c *chronicle) make(ctx context.Context, call history.Call, doomed time.Duration) {
	by, end := c.Mortal()
	if doomed > 0 {
		defer time.AfterFunc(doomed, func() { _ = end(os.Kill) }).Stop()
	}
	call.Started = int64(time.Since(c.began))
	response, err := by.Call(ctx, call.Method, c.arguments(call)...)
	call.Ended = int64(time.Since(c.began))
	call.Outcome = outcomeOf(call, response, err)
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.calls = append(c.calls, call)
}

func outcomeOf(call history.Call, response director.Response, err error) history.Outcome {
	switch {
	case err != nil:
		return history.Lost
	case response.Error != nil:
		return history.OutcomeOf(response.Error.Type)
	case call.Method == "get_disks":
		return truth(strings.Contains(string(response.Result), `"`+call.About+`"`))
	case strings.HasPrefix(call.Method, "has_"):
		return truth(string(response.Result) == "true")
	}
	return history.Well
}

func truth(is bool) history.Outcome {
	if is {
		return history.Yes
	}
	return history.No
}

// replace puts another disk or machine in the place of one that was deleted, though not always at once: calls about it that
// come late are a part of the history.
func (c *chronicle) replace(ctx context.Context, gone string, chance *rand.Rand) {
	disk := strings.HasPrefix(gone, "disk-")
	if chance.IntN(3) > 0 || (!disk && chance.IntN(4) > 0) {
		return
	}
	fresh := ""
	if disk {
		fresh = c.growing(ctx)
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	among := c.disks
	if !disk {
		among, fresh = c.machines, c.nextMachine()
	}
	if i := slices.Index(among, gone); i >= 0 {
		among[i] = fresh
	}
}

// judged returns the histories that cannot have come about, and of how many nothing could be said in time.
func (c *chronicle) judged() (impossible []string, undecided int) {
	for about, calls := range history.About(c.calls) {
		what, unknown := history.CheckMachine(calls)
		if strings.HasPrefix(about, "disk-") {
			what, unknown = history.CheckDisk(calls, historySizeMiB)
		}
		if what != "" {
			impossible = append(impossible, what)
		}
		if unknown {
			undecided++
		}
	}
	return impossible, undecided
}

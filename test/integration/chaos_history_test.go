package integration

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/test/chaos"
	"bosh-kubernetes-cpi/test/chaos/history"
	"bosh-kubernetes-cpi/test/harness/apiproxy"
	"bosh-kubernetes-cpi/test/harness/director"
)

// Parameters of a history. HISTORY_CALLS replaces historyCalls.
const (
	historyCalls   = 300
	historyWorkers = 8
	historyDisks   = 6
	historyVMs     = 4
	historySizeMiB = 64
)

var _ = Describe("Random concurrent calls, some of them retried or killed,", Label("faults"), func() {
	It("have outcomes that fit some order of the calls", func(ctx context.Context) {
		calls := chaos.Size("HISTORY_CALLS", historyCalls)
		recorder := newHistoryRecorder(ctx)
		recorder.run(ctx, calls)
		counts := history.CountOutcomes(recorder.calls)
		GinkgoWriter.Print(counts)
		impossible, undecided := recorder.checkHistories()
		histories := len(history.GroupBySubject(recorder.calls))
		if len(impossible) > 0 {
			Fail("these outcomes do not fit any order of the calls:\n" + strings.Join(impossible, "\n"))
		}
		AddReportEntry(fmt.Sprintf("%d attachment Pods deleted by another client", recorder.deletedAttachments.Load()))
		Expect(recorder.deletedAttachments.Load()).To(BeNumerically(">", 0))
		Expect(len(recorder.calls)).To(BeNumerically(">=", calls))
		Expect(counts).To(And(ContainSubstring("attach_disk succeeded"), ContainSubstring("detach_disk succeeded"), ContainSubstring("killed")), "no call succeeded, or no process was killed")
		chaos.AddToReport("random calls", chaos.Cases{Group: "calls", Tried: len(recorder.calls), Passed: len(recorder.calls)})
		chaos.AddToReport("histories", chaos.Cases{Group: "histories", Tried: histories, Passed: histories - undecided})
	})
})

// historyRecorder makes random calls, and records their outcomes.
type historyRecorder struct {
	testEnv
	vms       []string
	startTime time.Time

	mutex              sync.Mutex
	disks              []string // the disks for calls
	agents             []string // the agent IDs of the VMs for calls
	calls              []history.Call
	agentCount         int
	deletedAttachments atomic.Int64 // attachment Pods deleted by deleteAttachments
}

// newHistoryRecorder returns a recorder with VMs and disks for the calls.
func newHistoryRecorder(ctx context.Context) *historyRecorder {
	GinkgoHelper()
	r := &historyRecorder{testEnv: newTestEnv(ctx), startTime: time.Now()}
	r.Director = r.directorWithTimeouts(map[string]any{"create_vm": "10s", "attach_disk": "10s", "detach_disk": "10s", "delete_vm": "10s", "other": "10s", "request": "5s"})
	r.vms = []string{r.createVM(ctx, "first"), r.createVM(ctx, "second")}
	for range historyDisks {
		r.disks = append(r.disks, r.createGrowingDisk(ctx))
	}
	for range historyVMs {
		r.agents = append(r.agents, r.nextAgent())
	}
	return r
}

// createGrowingDisk creates a disk that can be expanded, with a volume that is accessible from any node.
func (r *historyRecorder) createGrowingDisk(ctx context.Context) string {
	GinkgoHelper()
	properties := map[string]any{"storage_class": "growing", "annotations": map[string]any{"test/driver": "integration.test"}}
	return r.mustCall(ctx, "create_disk", historySizeMiB, properties, nil).Text()
}

func (r *historyRecorder) nextAgent() string {
	r.agentCount++
	return fmt.Sprintf("m%d", r.agentCount)
}

// historyFaults loses responses and delays requests.
var historyFaults = []chaos.Weighted[func(n int) apiproxy.Fault]{
	chaos.Weigh(980, apiproxy.Forward), chaos.Weigh(10, apiproxy.ResetAfter),
	chaos.Weigh(5, apiproxy.DelayedRequest(500*time.Millisecond)), chaos.Weigh(5, apiproxy.DelayedRequest(3*time.Second)),
}

// Streams of random numbers, besides those of the workers.
const (
	faultStream = math.MaxUint64 - iota
	deletionStream
)

// deleteAttachments deletes an attachment Pod now and then, as another client could, until the context is canceled.
func (r *historyRecorder) deleteAttachments(ctx context.Context) {
	chance := chaos.NewRandom(chaos.Seed(), deletionStream)
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Duration(chance.Int64N(int64(2 * time.Second)))):
		}
		r.mutex.Lock()
		disk := r.disks[chance.IntN(len(r.disks))]
		r.mutex.Unlock()
		if cluster.CoreV1().Pods(r.namespace).Delete(ctx, disk+"-attachment", metav1.DeleteOptions{}) == nil {
			r.deletedAttachments.Add(1)
		}
	}
}

// run makes this number of calls in several workers.
func (r *historyRecorder) run(ctx context.Context, calls int) {
	r.proxy.Reset(chaos.RandomFaults(chaos.NewRandom(chaos.Seed(), faultStream), historyFaults))
	defer r.proxy.Reset(nil)
	deleteCtx, stop := context.WithCancel(ctx)
	defer stop()
	go r.deleteAttachments(deleteCtx)
	var workers sync.WaitGroup
	for i := range historyWorkers {
		workers.Go(func() {
			defer GinkgoRecover()
			chance := chaos.NewRandom(chaos.Seed(), uint64(i))
			for range calls / historyWorkers {
				r.makeRandomCall(ctx, chance)
			}
		})
	}
	workers.Wait()
}

// makeRandomCall makes a random call, and sometimes the same call concurrently.
func (r *historyRecorder) makeRandomCall(ctx context.Context, chance *rand.Rand) {
	drawn := r.drawCall(chance)
	randomKillDelay := func() time.Duration {
		if chance.IntN(10) > 0 {
			return 0
		}
		return time.Duration(1+chance.IntN(1000)) * time.Millisecond
	}
	secondDelay, firstDelay := randomKillDelay(), randomKillDelay()
	var both sync.WaitGroup
	if chance.IntN(6) == 0 {
		both.Go(func() { defer GinkgoRecover(); r.makeCall(ctx, drawn, secondDelay) })
	}
	r.makeCall(ctx, drawn, firstDelay)
	both.Wait()
	if drawn.Method == "delete_disk" || drawn.Method == "delete_vm" {
		r.replaceDeleted(ctx, drawn.Subject, chance)
	}
}

// Methods of random calls.
var (
	historyVMMethods = []chaos.Weighted[string]{
		chaos.Weigh(4, "create_vm"), chaos.Weigh(3, "has_vm"), chaos.Weigh(3, "set_vm_metadata"), chaos.Weigh(2, "delete_vm"),
	}
	historyDiskMethods = []chaos.Weighted[string]{
		chaos.Weigh(30, "attach_disk"), chaos.Weigh(28, "detach_disk"), chaos.Weigh(12, "get_disks"), chaos.Weigh(10, "resize_disk"),
		chaos.Weigh(6, "has_disk"), chaos.Weigh(4, "snapshot_disk"), chaos.Weigh(6, "set_disk_metadata"), chaos.Weigh(4, "delete_disk"),
	}
)

// drawCall returns a random call.
func (r *historyRecorder) drawCall(chance *rand.Rand) history.Call {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if chance.IntN(5) == 0 {
		return history.Call{Method: chaos.Draw(chance, historyVMMethods), Subject: r.agents[chance.IntN(len(r.agents))]}
	}
	drawn := history.Call{Method: chaos.Draw(chance, historyDiskMethods), Subject: r.disks[chance.IntN(len(r.disks))]}
	switch drawn.Method {
	case "attach_disk", "detach_disk", "get_disks":
		drawn.VM = r.vms[chance.IntN(len(r.vms))]
	case "resize_disk":
		drawn.SizeMiB = historySizeMiB + 8*chance.IntN(100)
	}
	return drawn
}

// arguments returns the arguments of the call.
func (r *historyRecorder) arguments(call history.Call) []any {
	switch call.Method {
	case "create_vm":
		return []any{call.Subject, stemcellCID, r.vmProperties, dynamicNetwork(), []string{}, map[string]any{}}
	case "delete_vm", "has_vm":
		return []any{"agent-" + call.Subject}
	case "set_vm_metadata":
		return []any{"agent-" + call.Subject, map[string]any{"job": "web"}}
	case "attach_disk", "detach_disk":
		return []any{call.VM, call.Subject}
	case "get_disks":
		return []any{call.VM}
	case "resize_disk":
		return []any{call.Subject, call.SizeMiB}
	case "snapshot_disk", "set_disk_metadata":
		return []any{call.Subject, map[string]any{"job": "web"}}
	default:
		return []any{call.Subject}
	}
}

// makeCall makes the call, and kills its process after killDelay, unless killDelay is 0.
func (r *historyRecorder) makeCall(ctx context.Context, call history.Call, killDelay time.Duration) {
	if killDelay > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, killDelay)
		defer cancel()
	}
	call.Started = int64(time.Since(r.startTime))
	response, err := r.Call(ctx, call.Method, r.arguments(call)...)
	call.Ended = int64(time.Since(r.startTime))
	call.Outcome = outcomeOf(call, response, err)
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.calls = append(r.calls, call)
}

// outcomeOf returns the outcome of a call with this response. err is the error of its process.
func outcomeOf(call history.Call, response director.Response, err error) history.Outcome {
	switch {
	case err != nil:
		return history.Killed
	case response.Error != nil:
		return history.OutcomeOf(response.Error.Type)
	case call.Method == "get_disks":
		return boolOutcome(strings.Contains(string(response.Result), `"`+call.Subject+`"`))
	case strings.HasPrefix(call.Method, "has_"):
		return boolOutcome(string(response.Result) == "true")
	}
	return history.Succeeded
}

func boolOutcome(value bool) history.Outcome {
	if value {
		return history.Yes
	}
	return history.No
}

// replaceDeleted sometimes replaces a deleted disk or VM with a new one. Otherwise, calls with the deleted subject become part of the
// history.
func (r *historyRecorder) replaceDeleted(ctx context.Context, deleted string, chance *rand.Rand) {
	isDisk := strings.HasPrefix(deleted, "disk-")
	if chance.IntN(3) > 0 || (!isDisk && chance.IntN(4) > 0) {
		return
	}
	replacement := ""
	if isDisk {
		replacement = r.createGrowingDisk(ctx)
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	subjects := r.disks
	if !isDisk {
		subjects, replacement = r.agents, r.nextAgent()
	}
	if i := slices.Index(subjects, deleted); i >= 0 {
		subjects[i] = replacement
	}
}

// checkHistories returns the impossible histories, and the number of histories that could not be checked in time.
func (r *historyRecorder) checkHistories() (impossible []string, undecided int) {
	for subject, calls := range history.GroupBySubject(r.calls) {
		violation, unknown := history.CheckVM(calls)
		if strings.HasPrefix(subject, "disk-") {
			violation, unknown = history.CheckDisk(calls, historySizeMiB)
		}
		if violation != "" {
			impossible = append(impossible, violation)
		}
		if unknown {
			undecided++
		}
	}
	return impossible, undecided
}

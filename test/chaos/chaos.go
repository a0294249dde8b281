// Package chaos is the engine of the tests that inject faults: it draws cases and random decisions from one seed, and reports the cases
// that failed. Its Scenario tests VMs with disks: it makes calls in the order of a real director, while faults that occur in any cluster
// affect the Pods. Each disk has a counter. A counter that decreases, or that two VMs write, is a violation.
package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"bosh-kubernetes-cpi/test/harness/director"
)

// Environment is the environment of a chaos test.
type Environment interface {
	// Call makes a call of the director.
	Call(ctx context.Context, method string, arguments ...any) (director.Response, error)
	// NewVM returns the arguments of create_vm for a VM with this disk, and the CID of the VM.
	NewVM(disk string) (cid string, arguments []any)
	// StartCounter starts a program in the VM that increments the counter on the attached disk as often as it can. The program records a
	// violation if another program changed the counter.
	StartCounter(ctx context.Context, vm, disk string) error
	// ReadCounter returns the value of the counter.
	ReadCounter(ctx context.Context, vm, disk string) (int, error)
	// StopCounter stops the program, and unmounts the disk, as an agent does before detach_disk.
	StopCounter(ctx context.Context, vm, disk string) error
	// Violations returns the violations recorded by the programs.
	Violations() []string
}

// Fault is a fault that can be injected several times.
type Fault struct {
	Name   string
	Inject func(ctx context.Context, random *rand.Rand) error
}

// Scenario is a chaos test.
type Scenario struct {
	Environment
	Faults    []Weighted[Fault]
	MeanPause time.Duration // between two faults, on average
	Disks     []string
	Seed      uint64
	Duration  time.Duration
	Log       func(format string, arguments ...any)

	mutex      sync.Mutex
	violations []string
	counts     map[string]int    // calls and faults, by name
	vms        map[string]string // the VM of each disk, as known to the director
}

// Run makes calls and injects faults for the scenario's duration. It then checks that each disk recovers, and returns the violations.
func (s *Scenario) Run(ctx context.Context) (violations []string) {
	s.counts, s.vms = map[string]int{}, map[string]string{}
	faultCtx, cancel := context.WithTimeout(ctx, s.Duration)
	defer cancel()
	var workers sync.WaitGroup
	workers.Go(func() { s.injectFaults(faultCtx) })
	for i, cid := range s.Disks {
		workers.Go(func() {
			worker := &diskWorker{Scenario: s, cid: cid, random: NewRandom(s.Seed, uint64(i)+1)}
			worker.runCalls(faultCtx)
			worker.verifyRecovery(ctx)
		})
	}
	workers.Wait()
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return append(s.violations, s.Violations()...)
}

// Counts returns the number of calls, of failed and killed calls, and of faults.
func (s *Scenario) Counts() map[string]int {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.counts
}

// Totals returns the numbers of calls, killed calls and faults.
func (s *Scenario) Totals() map[string]int {
	totals := map[string]int{}
	for name, count := range s.Counts() {
		switch {
		case strings.HasPrefix(name, faultPrefix):
			totals["faults"] += count
		case strings.HasSuffix(name, killedSuffix):
			totals["killed calls"] += count
		case !strings.Contains(name, " "):
			totals["calls"] += count
		}
	}
	return totals
}

// Parts of the names of counts.
const (
	faultPrefix  = "fault: "
	killedSuffix = " killed"
)

func (s *Scenario) incrementCount(name string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.counts[name]++
}

// setVM records the VM of the disk.
func (s *Scenario) setVM(disk, vm string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.vms[disk] = vm
}

// otherVM returns the VM of a random other disk, or "".
func (s *Scenario) otherVM(disk string, random *rand.Rand) string {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	other := s.Disks[random.IntN(len(s.Disks))]
	if other == disk {
		return ""
	}
	return s.vms[other]
}

func (s *Scenario) addViolation(format string, arguments ...any) {
	message := fmt.Sprintf(format, arguments...)
	s.Log("VIOLATION: %s", message)
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.violations = append(s.violations, message)
}

// injectFaults injects faults until the context is canceled. Different faults can overlap. A fault that is still running is not injected
// again.
func (s *Scenario) injectFaults(ctx context.Context) {
	random := NewRandom(s.Seed, 0)
	running := make(map[string]*sync.Mutex, len(s.Faults))
	for _, fault := range s.Faults {
		running[fault.Value.Name] = &sync.Mutex{}
	}
	var injections sync.WaitGroup
	defer injections.Wait()
	for n := uint64(0); sleep(ctx, time.Duration(random.Int64N(int64(2*s.MeanPause)))); n++ {
		fault := Draw(random, s.Faults)
		if !running[fault.Name].TryLock() {
			continue
		}
		s.incrementCount(faultPrefix + fault.Name)
		injections.Go(func() {
			defer running[fault.Name].Unlock()
			if err := fault.Inject(ctx, NewRandom(^s.Seed, n)); err != nil && ctx.Err() == nil {
				s.Log("%s: %v", fault.Name, err)
			}
		})
	}
}

// sleep pauses, and reports whether the context is still active.
func sleep(ctx context.Context, pause time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(pause):
		return true
	}
}

// diskWorker makes a director's calls for a disk, and knows only what a director knows.
type diskWorker struct {
	*Scenario
	cid       string
	vm        string // "" if there is none
	lastCount int    // last value of the counter
	random    *rand.Rand
}

var errCallFailed = errors.New("the call failed")

// callUnreliably makes a call, and kills some calls at a random time.
func (d *diskWorker) callUnreliably(ctx context.Context, method string, arguments ...any) (director.Response, error) {
	callCtx, cancel := ctx, func() {}
	if d.random.IntN(8) == 0 {
		callCtx, cancel = context.WithTimeout(ctx, time.Duration(50+d.random.IntN(1500))*time.Millisecond)
	}
	defer cancel()
	response, err := d.Call(callCtx, method, arguments...)
	d.incrementCount(method)
	switch {
	case err != nil && callCtx.Err() != nil && ctx.Err() == nil:
		d.incrementCount(method + killedSuffix)
	case err != nil && ctx.Err() == nil:
		d.addViolation("%s of disk %s: no response: %v", method, d.cid, err)
	case err == nil && response.Error != nil:
		d.incrementCount(method + " failed")
		d.Log("%s of %s with %s: %s", method, d.vm, d.cid, response.Error.Message)
		err = fmt.Errorf("%w: %s: %s", errCallFailed, response.Error.Type, response.Error.Message)
	}
	return response, err
}

// runCalls makes random calls until the context is canceled.
func (d *diskWorker) runCalls(ctx context.Context) {
	calls := []Weighted[func(context.Context)]{
		Weigh(30, d.idle), Weigh(20, d.reattach), Weigh(8, d.detachAndDeleteVM), Weigh(6, d.deleteVMWithDisk), Weigh(12, d.queryDisk),
		Weigh(4, d.rebootVM), Weigh(20, d.tryForbiddenCalls),
	}
	for ctx.Err() == nil {
		if d.ensureCounting(ctx) {
			Draw(d.random, calls)(ctx)
		}
	}
}

func (d *diskWorker) idle(ctx context.Context) {
	sleep(ctx, time.Duration(d.random.Int64N(int64(2*d.MeanPause))))
}

// verifyRecovery checks that the disk recovers after the faults, and that all calls then succeed.
func (d *diskWorker) verifyRecovery(ctx context.Context) {
	for !d.ensureCounting(ctx) {
		if ctx.Err() != nil {
			d.addViolation("disk %s did not recover", d.cid)
			return
		}
	}
	if err := d.StopCounter(ctx, d.vm, d.cid); err != nil {
		d.addViolation("cannot unmount disk %s in VM %s: %v", d.cid, d.vm, err)
	}
	for _, call := range [][]any{{"detach_disk", d.vm, d.cid}, {"delete_vm", d.vm}, {"delete_disk", d.cid}} {
		method, _ := call[0].(string)
		response, err := d.Call(ctx, method, call[1:]...)
		if err != nil || response.Error != nil {
			d.addViolation("after the faults, %s of disk %s and VM %s: %v %v", method, d.cid, d.vm, response.Error, err)
		}
	}
}

// ensureCounting creates a VM for the disk if necessary, attaches the disk and starts the counter. It reports whether that succeeded.
func (d *diskWorker) ensureCounting(ctx context.Context) bool {
	if d.vm != "" {
		response, err := d.callUnreliably(ctx, "has_vm", d.vm)
		if err != nil {
			return false
		}
		if string(response.Result) == "false" && !d.deleteVM(ctx) {
			return false
		}
	}
	if d.vm == "" && !d.createVM(ctx) {
		return false
	}
	if _, err := d.callUnreliably(ctx, "attach_disk", d.vm, d.cid); err != nil {
		if d.random.IntN(3) == 0 {
			d.deleteVM(ctx)
		}
		return false
	}
	return d.StartCounter(ctx, d.vm, d.cid) == nil && d.checkCounter(ctx)
}

// createVM creates a VM. If the call fails, it deletes the VM, as a director does with a VM in an unknown state.
func (d *diskWorker) createVM(ctx context.Context) bool {
	cid, arguments := d.NewVM(d.cid)
	d.vm = cid
	d.setVM(d.cid, cid)
	if _, err := d.callUnreliably(ctx, "create_vm", arguments...); err != nil {
		d.deleteVM(ctx)
		return false
	}
	return true
}

// checkCounter reads the counter, and adds a violation if it decreased. It reports whether the counter could be read.
func (d *diskWorker) checkCounter(ctx context.Context) bool {
	count, err := d.ReadCounter(ctx, d.vm, d.cid)
	if err != nil {
		return false
	}
	if count < d.lastCount {
		d.addViolation("the counter of disk %s decreased from %d to %d in VM %s", d.cid, d.lastCount, count, d.vm)
	}
	d.lastCount = count
	return true
}

// detach stops the counter and detaches the disk. It reports whether that succeeded.
func (d *diskWorker) detach(ctx context.Context) bool {
	if !d.checkCounter(ctx) || d.StopCounter(ctx, d.vm, d.cid) != nil {
		return false
	}
	_, err := d.callUnreliably(ctx, "detach_disk", d.vm, d.cid)
	return err == nil
}

func (d *diskWorker) reattach(ctx context.Context) { d.detach(ctx) }

func (d *diskWorker) detachAndDeleteVM(ctx context.Context) {
	if d.detach(ctx) {
		d.deleteVM(ctx)
	}
}

// deleteVMWithDisk deletes the VM while the disk is attached.
func (d *diskWorker) deleteVMWithDisk(ctx context.Context) {
	d.checkCounter(ctx)
	d.deleteVM(ctx)
}

// deleteVM deletes the VM to release its disks, even if the VM no longer exists, as a director does.
func (d *diskWorker) deleteVM(ctx context.Context) (deleted bool) {
	_, err := d.callUnreliably(ctx, "delete_vm", d.vm)
	if deleted = err == nil || strings.Contains(err.Error(), "Bosh::Clouds::VMNotFound"); deleted {
		d.vm = ""
	}
	return deleted
}

func (d *diskWorker) queryDisk(ctx context.Context) {
	_, _ = d.callUnreliably(ctx, "get_disks", d.vm)
	_, _ = d.callUnreliably(ctx, "has_disk", d.cid)
}

func (d *diskWorker) rebootVM(ctx context.Context) { _, _ = d.callUnreliably(ctx, "reboot_vm", d.vm) }

// tryForbiddenCalls makes calls that must fail while the disk is in use.
func (d *diskWorker) tryForbiddenCalls(ctx context.Context) {
	if !d.checkCounter(ctx) {
		return
	}
	for _, call := range [][]any{{"delete_disk", d.cid}, {"resize_disk", d.cid, 256}} {
		method, _ := call[0].(string)
		response, err := d.Call(ctx, method, call[1:]...)
		d.incrementCount(method + " of a disk in use")
		if err == nil && response.Error == nil && d.checkCounter(ctx) {
			d.addViolation("%s of disk %s succeeded while VM %s uses it", method, d.cid, d.vm)
		}
	}
	if other := d.otherVM(d.cid, d.random); other != "" {
		d.attachElsewhere(ctx, other)
	}
}

// attachElsewhere tries to attach the disk to another VM, which may succeed only if the disk's VM no longer exists.
func (d *diskWorker) attachElsewhere(ctx context.Context, other string) {
	response, err := d.Call(ctx, "attach_disk", other, d.cid)
	d.incrementCount("attach_disk of a disk in use elsewhere")
	if err != nil || response.Error != nil {
		return
	}
	if d.checkCounter(ctx) {
		d.addViolation("disk %s was attached to VM %s while VM %s uses it", d.cid, other, d.vm)
	}
	_, _ = d.Call(ctx, "detach_disk", other, d.cid)
}

// Package chaos is bad weather for machines with disks: while a director makes its calls, in the order in which a
// director makes them, everything happens to their Pods that a cluster does. Each disk carries a counter; what is
// looked for is one that goes back, or that two machines write.
package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"bosh-kubernetes-cpi/test/director"
)

// Environment is where the storm is.
type Environment interface {
	// Call is the director's.
	Call(ctx context.Context, method string, arguments ...any) (director.Response, error)
	// NewVM returns the arguments of a create_vm for a machine that is to get this disk, and the CID that it will have.
	NewVM(disk string) (cid string, arguments []any)
	// StartCounter lets a program in the machine count on the disk, which is attached to it, as often as it can from now on. It
	// goes on from what is there, and notes a violation when it finds that somebody else counts.
	StartCounter(ctx context.Context, vm, disk string) error
	// ReadCounter returns how far the counter has come.
	ReadCounter(ctx context.Context, vm, disk string) (int, error)
	// StopCounter ends the program, and unmounts the disk, as an agent does before detach_disk.
	StopCounter(ctx context.Context, vm, disk string) error
	// Violations are those that the programs have noted.
	Violations() []string
}

// Fault is something that happens to the cluster.
type Fault struct {
	Name   string
	Weight int // how often it happens, beside the others
	Inject func(ctx context.Context, chance *rand.Rand) error
}

// Scenario is one.
type Scenario struct {
	Environment
	Weather   []Fault
	MeanPause time.Duration // between two events, on average
	Disks     []string
	Seed      uint64
	Duration  time.Duration
	Log       func(format string, arguments ...any)

	mutex      sync.Mutex
	violations []string
	counts     map[string]int    // calls and events, by name
	vms        map[string]string // of each disk, as its director knows it
}

// Run lets the storm rage, and waits until each disk's machine works again. It returns what went wrong.
func (s *Scenario) Run(ctx context.Context) (violations []string) {
	s.counts, s.vms = map[string]int{}, map[string]string{}
	faultCtx, cancel := context.WithTimeout(ctx, s.Duration)
	defer cancel()
	var all sync.WaitGroup
	all.Go(func() { s.injectFaults(faultCtx) })
	for i, cid := range s.Disks {
		all.Go(func() {
			worker := &diskWorker{Scenario: s, cid: cid, chance: rand.New(rand.NewPCG(s.Seed, uint64(i)+1))}
			worker.runCalls(faultCtx)
			worker.verifyRecovery(ctx)
		})
	}
	all.Wait()
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return append(s.violations, s.Violations()...)
}

// Counts tells how often each call was made, and how often it failed, and what else happened.
func (s *Scenario) Counts() map[string]int {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.counts
}

func (s *Scenario) incrementCount(name string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.counts[name]++
}

// setVM notes which machine is the disk's.
func (s *Scenario) setVM(disk, vm string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.vms[disk] = vm
}

// otherVM returns the machine of another disk, or "".
func (s *Scenario) otherVM(disk string, chance *rand.Rand) string {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	other := s.Disks[chance.IntN(len(s.Disks))]
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

// injectFaults makes weather until the context ends. What takes its time does not keep the rest from happening, but itself
// from happening twice at once.
func (s *Scenario) injectFaults(ctx context.Context) {
	chance := rand.New(rand.NewPCG(s.Seed, 0))
	weights := make([]int, len(s.Weather))
	for i, fault := range s.Weather {
		weights[i] = fault.Weight
	}
	running := make([]sync.Mutex, len(s.Weather))
	var all sync.WaitGroup
	defer all.Wait()
	for n := uint64(0); sleep(ctx, time.Duration(chance.Int64N(int64(2*s.MeanPause)))); n++ {
		drawn := weightedIndex(chance, weights)
		if !running[drawn].TryLock() {
			continue
		}
		fault := s.Weather[drawn]
		s.incrementCount("weather: " + fault.Name)
		all.Go(func() {
			defer running[drawn].Unlock()
			if err := fault.Inject(ctx, rand.New(rand.NewPCG(^s.Seed, n))); err != nil && ctx.Err() == nil {
				s.Log("%s: %v", fault.Name, err)
			}
		})
	}
}

// weightedIndex returns an index, each as often as its weight says.
func weightedIndex(chance *rand.Rand, weights []int) int {
	sum := 0
	for _, weight := range weights {
		sum += weight
	}
	drawn := chance.IntN(sum)
	for i, weight := range weights {
		if drawn -= weight; drawn < 0 {
			return i
		}
	}
	panic("no weights")
}

// sleep reports whether there is time left after this much of it.
func sleep(ctx context.Context, pause time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(pause):
		return true
	}
}

// diskWorker is what a director does with one, which it knows as well as a director does.
type diskWorker struct {
	*Scenario
	cid       string
	vm        string // "" when there is none
	lastCount int    // what was read last
	chance    *rand.Rand
}

var errCallFailed = errors.New("the call failed")

// callUnreliably makes one. Some are killed on their way.
func (d *diskWorker) callUnreliably(ctx context.Context, method string, arguments ...any) (director.Response, error) {
	callCtx, cancel := ctx, func() {}
	if d.chance.IntN(8) == 0 {
		callCtx, cancel = context.WithTimeout(ctx, time.Duration(50+d.chance.IntN(1500))*time.Millisecond)
	}
	defer cancel()
	response, err := d.Call(callCtx, method, arguments...)
	d.incrementCount(method)
	switch {
	case err != nil && callCtx.Err() != nil && ctx.Err() == nil:
		d.incrementCount(method + " killed")
	case err != nil && ctx.Err() == nil:
		d.addViolation("%s of disk %s: no answer: %v", method, d.cid, err)
	case err == nil && response.Error != nil:
		d.incrementCount(method + " failed")
		d.Log("%s of %s with %s: %s", method, d.vm, d.cid, response.Error.Message)
		err = fmt.Errorf("%w: %s: %s", errCallFailed, response.Error.Type, response.Error.Message)
	}
	return response, err
}

// runCalls goes on until the storm is over.
func (d *diskWorker) runCalls(ctx context.Context) {
	weights := []int{30, 20, 8, 6, 12, 4, 20}
	calls := []func(context.Context){d.idle, d.reattach, d.detachAndDeleteVM, d.deleteVMWithDisk, d.queryDisk, d.rebootVM, d.tryForbiddenCalls}
	for ctx.Err() == nil {
		if d.ensureCounting(ctx) {
			calls[weightedIndex(d.chance, weights)](ctx)
		}
	}
}

func (d *diskWorker) idle(ctx context.Context) {
	sleep(ctx, time.Duration(d.chance.Int64N(int64(2*d.MeanPause))))
}

// verifyRecovery works again once the storm is over: each call succeeds.
func (d *diskWorker) verifyRecovery(ctx context.Context) {
	for !d.ensureCounting(ctx) {
		if ctx.Err() != nil {
			d.addViolation("disk %s never came back", d.cid)
			return
		}
	}
	if err := d.StopCounter(ctx, d.vm, d.cid); err != nil {
		d.addViolation("disk %s cannot be let go in VM %s: %v", d.cid, d.vm, err)
	}
	for _, call := range [][]any{{"detach_disk", d.vm, d.cid}, {"delete_vm", d.vm}, {"delete_disk", d.cid}} {
		method, _ := call[0].(string)
		response, err := d.Call(ctx, method, call[1:]...)
		if err != nil || response.Error != nil {
			d.addViolation("after the storm, %s of disk %s and VM %s: %v %v", method, d.cid, d.vm, response.Error, err)
		}
	}
}

// ensureCounting sees to it that there is a machine that has the disk and counts on it, and reports whether there is.
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
		if d.chance.IntN(3) == 0 {
			d.deleteVM(ctx)
		}
		return false
	}
	return d.StartCounter(ctx, d.vm, d.cid) == nil && d.checkCounter(ctx)
}

// createVM makes a machine. One that is not known to be there is taken away again, as by a director that has lost it.
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

// checkCounter reads the counter.
func (d *diskWorker) checkCounter(ctx context.Context) bool {
	count, err := d.ReadCounter(ctx, d.vm, d.cid)
	if err != nil {
		return false
	}
	if count < d.lastCount {
		d.addViolation("the counter of disk %s went back from %d to %d in VM %s", d.cid, d.lastCount, count, d.vm)
	}
	d.lastCount = count
	return true
}

// detach reports whether the disk is attached no more.
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

// deleteVMWithDisk deletes the machine with its disk.
func (d *diskWorker) deleteVMWithDisk(ctx context.Context) {
	d.checkCounter(ctx)
	d.deleteVM(ctx)
}

// deleteVM deletes the machine, which a director does with one that is gone, too: that releases its disks.
func (d *diskWorker) deleteVM(ctx context.Context) (removed bool) {
	_, err := d.callUnreliably(ctx, "delete_vm", d.vm)
	if removed = err == nil || strings.Contains(err.Error(), "Bosh::Clouds::VMNotFound"); removed {
		d.vm = ""
	}
	return removed
}

func (d *diskWorker) queryDisk(ctx context.Context) {
	_, _ = d.callUnreliably(ctx, "get_disks", d.vm)
	_, _ = d.callUnreliably(ctx, "has_disk", d.cid)
}

func (d *diskWorker) rebootVM(ctx context.Context) { _, _ = d.callUnreliably(ctx, "reboot_vm", d.vm) }

// tryForbiddenCalls asks for what must not be while the disk is in use.
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
	if other := d.otherVM(d.cid, d.chance); other != "" {
		d.attachElsewhere(ctx, other)
	}
}

// attachElsewhere attaches the disk to another machine, which succeeds only when this one is gone by then.
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

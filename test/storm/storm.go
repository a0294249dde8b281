// Package storm is bad weather for machines with disks: while a director makes its calls, in the order in which a
// director makes them, everything happens to their Pods that a cluster does. Each disk carries a counter; what is
// looked for is one that goes back, or that two machines write.
package storm

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

// Site is where the storm is.
type Site interface {
	// Call is the director's.
	Call(ctx context.Context, method string, arguments ...any) (director.Response, error)
	// NewVM returns the arguments of a create_vm for a machine that is to get this disk, and the CID that it will have.
	NewVM(disk string) (cid string, arguments []any)
	// Count lets a program in the machine count on the disk, which is attached to it, as often as it can from now on. It
	// goes on from what is there, and notes a violation when it finds that somebody else counts.
	Count(ctx context.Context, vm, disk string) error
	// Read returns how far the counter has come.
	Read(ctx context.Context, vm, disk string) (int, error)
	// Stop ends the program, and unmounts the disk, as an agent does before detach_disk.
	Stop(ctx context.Context, vm, disk string) error
	// Violations are those that the programs have noted.
	Violations() []string
}

// Weather is something that happens to the cluster.
type Weather struct {
	Name    string
	Weight  int // how often it happens, beside the others
	Happens func(ctx context.Context, chance *rand.Rand) error
}

// Storm is one.
type Storm struct {
	Site
	Weather  []Weather
	Pause    time.Duration // between two events, on average
	Disks    []string
	Seed     uint64
	Duration time.Duration
	Log      func(format string, arguments ...any)

	mutex      sync.Mutex
	violations []string
	counts     map[string]int    // calls and events, by name
	machines   map[string]string // of each disk, as its director knows it
}

// Run lets the storm rage, and waits until each disk's machine works again. It returns what went wrong.
func (s *Storm) Run(ctx context.Context) (violations []string) {
	s.counts, s.machines = map[string]int{}, map[string]string{}
	raging, calm := context.WithTimeout(ctx, s.Duration)
	defer calm()
	var all sync.WaitGroup
	all.Go(func() { s.rage(raging) })
	for i, cid := range s.Disks {
		all.Go(func() {
			disk := &disk{Storm: s, cid: cid, chance: rand.New(rand.NewPCG(s.Seed, uint64(i)+1))}
			disk.live(raging)
			disk.survive(ctx)
		})
	}
	all.Wait()
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return append(s.violations, s.Violations()...)
}

// Counts tells how often each call was made, and how often it failed, and what else happened.
func (s *Storm) Counts() map[string]int {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.counts
}

func (s *Storm) count(name string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.counts[name]++
}

// moves notes which machine is the disk's.
func (s *Storm) moves(disk, vm string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.machines[disk] = vm
}

// another returns the machine of another disk, or "".
func (s *Storm) another(disk string, chance *rand.Rand) string {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	other := s.Disks[chance.IntN(len(s.Disks))]
	if other == disk {
		return ""
	}
	return s.machines[other]
}

func (s *Storm) violated(format string, arguments ...any) {
	said := fmt.Sprintf(format, arguments...)
	s.Log("VIOLATION: %s", said)
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.violations = append(s.violations, said)
}

// rage makes weather until the context ends. What takes its time does not keep the rest from happening, but itself
// from happening twice at once.
func (s *Storm) rage(ctx context.Context) {
	chance := rand.New(rand.NewPCG(s.Seed, 0))
	weights := make([]int, len(s.Weather))
	for i, each := range s.Weather {
		weights[i] = each.Weight
	}
	happening := make([]sync.Mutex, len(s.Weather))
	var all sync.WaitGroup
	defer all.Wait()
	for n := uint64(0); wait(ctx, time.Duration(chance.Int64N(int64(2*s.Pause)))); n++ {
		drawn := draw(chance, weights)
		if !happening[drawn].TryLock() {
			continue
		}
		each := s.Weather[drawn]
		s.count("weather: " + each.Name)
		all.Go(func() {
			defer happening[drawn].Unlock()
			if err := each.Happens(ctx, rand.New(rand.NewPCG(^s.Seed, n))); err != nil && ctx.Err() == nil {
				s.Log("%s: %v", each.Name, err)
			}
		})
	}
}

// draw returns an index, each as often as its weight says.
func draw(chance *rand.Rand, weights []int) int {
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

// wait reports whether there is time left after this much of it.
func wait(ctx context.Context, pause time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(pause):
		return true
	}
}

// disk is what a director does with one, which it knows as well as a director does.
type disk struct {
	*Storm
	cid    string
	vm     string // "" when there is none
	last   int    // what was read last
	chance *rand.Rand
}

var errFailed = errors.New("the call failed")

// call makes one. Some are killed on their way.
func (d *disk) call(ctx context.Context, method string, arguments ...any) (director.Response, error) {
	mortal, cancel := ctx, func() {}
	if d.chance.IntN(8) == 0 {
		mortal, cancel = context.WithTimeout(ctx, time.Duration(50+d.chance.IntN(1500))*time.Millisecond)
	}
	defer cancel()
	response, err := d.Call(mortal, method, arguments...)
	d.count(method)
	switch {
	case err != nil && mortal.Err() != nil && ctx.Err() == nil:
		d.count(method + " killed")
	case err != nil && ctx.Err() == nil:
		d.violated("%s of disk %s: no answer: %v", method, d.cid, err)
	case err == nil && response.Error != nil:
		d.count(method + " failed")
		d.Log("%s of %s with %s: %s", method, d.vm, d.cid, response.Error.Message)
		err = fmt.Errorf("%w: %s: %s", errFailed, response.Error.Type, response.Error.Message)
	}
	return response, err
}

// live goes on until the storm is over.
func (d *disk) live(ctx context.Context) {
	weights := []int{30, 20, 8, 6, 12, 4, 20}
	calls := []func(context.Context){d.idle, d.reattach, d.move, d.abandon, d.ask, d.reboot, d.misuse}
	for ctx.Err() == nil {
		if d.settle(ctx) {
			calls[draw(d.chance, weights)](ctx)
		}
	}
}

func (d *disk) idle(ctx context.Context) { wait(ctx, time.Duration(d.chance.Int64N(int64(2*d.Pause)))) }

// survive works again once the storm is over: each call succeeds.
func (d *disk) survive(ctx context.Context) {
	for !d.settle(ctx) {
		if ctx.Err() != nil {
			d.violated("disk %s never came back", d.cid)
			return
		}
	}
	if err := d.Stop(ctx, d.vm, d.cid); err != nil {
		d.violated("disk %s cannot be let go in VM %s: %v", d.cid, d.vm, err)
	}
	for _, last := range [][]any{{"detach_disk", d.vm, d.cid}, {"delete_vm", d.vm}, {"delete_disk", d.cid}} {
		method, _ := last[0].(string)
		response, err := d.Call(ctx, method, last[1:]...)
		if err != nil || response.Error != nil {
			d.violated("after the storm, %s of disk %s and VM %s: %v %v", method, d.cid, d.vm, response.Error, err)
		}
	}
}

// settle sees to it that there is a machine that has the disk and counts on it, and reports whether there is.
func (d *disk) settle(ctx context.Context) bool {
	if d.vm != "" {
		there, err := d.call(ctx, "has_vm", d.vm)
		if err != nil {
			return false
		}
		if string(there.Result) == "false" && !d.remove(ctx) {
			return false
		}
	}
	if d.vm == "" && !d.make(ctx) {
		return false
	}
	if _, err := d.call(ctx, "attach_disk", d.vm, d.cid); err != nil {
		if d.chance.IntN(3) == 0 {
			d.remove(ctx)
		}
		return false
	}
	return d.Count(ctx, d.vm, d.cid) == nil && d.look(ctx)
}

// make makes a machine. One that is not known to be there is taken away again, as by a director that has lost it.
func (d *disk) make(ctx context.Context) bool {
	cid, arguments := d.NewVM(d.cid)
	d.vm = cid
	d.moves(d.cid, cid)
	if _, err := d.call(ctx, "create_vm", arguments...); err != nil {
		d.remove(ctx)
		return false
	}
	return true
}

// look reads the counter.
func (d *disk) look(ctx context.Context) bool {
	count, err := d.Read(ctx, d.vm, d.cid)
	if err != nil {
		return false
	}
	if count < d.last {
		d.violated("the counter of disk %s went back from %d to %d in VM %s", d.cid, d.last, count, d.vm)
	}
	d.last = count
	return true
}

// detach reports whether the disk is attached no more.
func (d *disk) detach(ctx context.Context) bool {
	if !d.look(ctx) || d.Stop(ctx, d.vm, d.cid) != nil {
		return false
	}
	_, err := d.call(ctx, "detach_disk", d.vm, d.cid)
	return err == nil
}

func (d *disk) reattach(ctx context.Context) { d.detach(ctx) }

func (d *disk) move(ctx context.Context) {
	if d.detach(ctx) {
		d.remove(ctx)
	}
}

// abandon deletes the machine with its disk.
func (d *disk) abandon(ctx context.Context) {
	d.look(ctx)
	d.remove(ctx)
}

// remove deletes the machine, which a director does with one that is gone, too: that releases its disks.
func (d *disk) remove(ctx context.Context) (removed bool) {
	_, err := d.call(ctx, "delete_vm", d.vm)
	if removed = err == nil || strings.Contains(err.Error(), "Bosh::Clouds::VMNotFound"); removed {
		d.vm = ""
	}
	return removed
}

func (d *disk) ask(ctx context.Context) {
	_, _ = d.call(ctx, "get_disks", d.vm)
	_, _ = d.call(ctx, "has_disk", d.cid)
}

func (d *disk) reboot(ctx context.Context) { _, _ = d.call(ctx, "reboot_vm", d.vm) }

// misuse asks for what must not be while the disk is in use.
func (d *disk) misuse(ctx context.Context) {
	if !d.look(ctx) {
		return
	}
	for _, wrong := range [][]any{{"delete_disk", d.cid}, {"resize_disk", d.cid, 256}} {
		method, _ := wrong[0].(string)
		response, err := d.Call(ctx, method, wrong[1:]...)
		d.count(method + " of a disk in use")
		if err == nil && response.Error == nil && d.look(ctx) {
			d.violated("%s of disk %s succeeded while VM %s uses it", method, d.cid, d.vm)
		}
	}
	if other := d.another(d.cid, d.chance); other != "" {
		d.steal(ctx, other)
	}
}

// steal attaches the disk to another machine, which succeeds only when this one is gone by then.
func (d *disk) steal(ctx context.Context, other string) {
	response, err := d.Call(ctx, "attach_disk", other, d.cid)
	d.count("attach_disk of a disk in use elsewhere")
	if err != nil || response.Error != nil {
		return
	}
	if d.look(ctx) {
		d.violated("disk %s was attached to VM %s while VM %s uses it", d.cid, other, d.vm)
	}
	_, _ = d.Call(ctx, "detach_disk", other, d.cid)
}

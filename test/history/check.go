package history

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// CheckDisk returns the shortest beginning of the calls about one disk that cannot have come about, as text, or "". The disk
// was there at first, of this size, and of no VM. It is undecided when no order was found in time, nor that there is none.
func CheckDisk(calls []Call, sizeMiB int) (impossible string, undecided bool) {
	return check(calls, diskState{exists: true, sizeMiB: sizeMiB}, diskState.nextStates)
}

// CheckVM is CheckDisk for a machine, which was not there at first.
func CheckVM(calls []Call) (impossible string, undecided bool) {
	return check(calls, vmState{}, vmState.nextStates)
}

// GroupBySubject sorts calls by what they are about.
func GroupBySubject(calls []Call) map[string][]Call {
	sorted := map[string][]Call{}
	for _, call := range calls {
		sorted[call.Subject] = append(sorted[call.Subject], call)
	}
	return sorted
}

// checkTimeout is how long an order of the calls about one disk or machine is looked for.
const checkTimeout = 20 * time.Second

func check[S comparable](calls []Call, initial S, transition func(S, Call) []S) (impossible string, undecided bool) {
	calls = slices.Clone(calls)
	slices.SortFunc(calls, func(a, b Call) int { return cmp.Compare(a.Ended, b.Ended) })
	if verdict := checkLinearizable(calls, initial, transition); verdict != porcupine.Illegal {
		return "", verdict == porcupine.Unknown
	}
	// What comes later makes nothing possible that was not.
	shortest := sort.Search(len(calls), func(n int) bool {
		return checkLinearizable(knownAfter(calls, n), initial, transition) == porcupine.Illegal
	})
	return describe(knownAfter(calls, shortest)), false
}

// knownAfter is what is known when the first n calls have ended: others that have begun may have had their effect.
func knownAfter(calls []Call, n int) []Call {
	known := slices.Clone(calls[:n])
	for _, call := range calls[n:] {
		if n > 0 && call.Started <= calls[n-1].Ended {
			call.Outcome = Killed
			known = append(known, call)
		}
	}
	return known
}

// maxEffectDelay is how long after its end a call may still have its effect, when it did not end well.
const maxEffectDelay = int64(10 * time.Second)

// checkLinearizable says whether there is an order in which the calls, one after another, have these outcomes.
func checkLinearizable[S comparable](calls []Call, initial S, transition func(S, Call) []S) porcupine.CheckResult {
	model := porcupine.NondeterministicModel{
		Init: func() []any { return []any{initial} },
		Step: func(state, input, _ any) []any {
			var states []any
			for _, nextState := range transition(state.(S), input.(Call)) {
				states = append(states, nextState)
			}
			return states
		},
	}
	operations := make([]porcupine.Operation, 0, len(calls))
	for i, call := range calls {
		ended := call.Ended
		if call.uncertain() {
			ended += maxEffectDelay
		}
		operations = append(operations, porcupine.Operation{ClientId: i, Input: call, Call: call.Started, Return: ended})
	}
	return porcupine.CheckOperationsTimeout(model.ToModel(), operations, checkTimeout)
}

func describe(calls []Call) string {
	slices.SortFunc(calls, func(a, b Call) int { return cmp.Compare(a.Started, b.Started) })
	var text strings.Builder
	for _, call := range calls {
		fmt.Fprintf(&text, "%10.3fs to %10.3fs %s %s", seconds(call.Started), seconds(call.Ended), call.Method, call.Subject)
		if call.VM != "" {
			fmt.Fprintf(&text, " %s", call.VM)
		}
		if call.SizeMiB != 0 {
			fmt.Fprintf(&text, " %d MiB", call.SizeMiB)
		}
		fmt.Fprintf(&text, ": %s\n", call.Outcome)
	}
	return text.String()
}

func seconds(moment int64) float64 { return time.Duration(moment).Seconds() }

// CountOutcomes tells how many calls of each method had which outcome.
func CountOutcomes(calls []Call) string {
	counts := map[string]int{}
	for _, call := range calls {
		counts[call.Method+" "+string(call.Outcome)]++
	}
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintf(&text, "%s: %d\n", name, counts[name])
	}
	return text.String()
}

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

// CheckDisk checks the history of a disk that initially exists with this size and is not attached. violation describes the shortest prefix
// of the history that is not linearizable, or is "". undecided is true if the check timed out.
func CheckDisk(calls []Call, sizeMiB int) (violation string, undecided bool) {
	return check(calls, diskState{exists: true, sizeMiB: sizeMiB}, diskState.nextStates)
}

// CheckVM is like CheckDisk, for a VM that initially does not exist.
func CheckVM(calls []Call) (violation string, undecided bool) {
	return check(calls, vmState{}, vmState.nextStates)
}

// GroupBySubject returns the calls of each disk or VM, by CID.
func GroupBySubject(calls []Call) map[string][]Call {
	groups := map[string][]Call{}
	for _, call := range calls {
		groups[call.Subject] = append(groups[call.Subject], call)
	}
	return groups
}

// checkTimeout bounds the search for an order of the calls of one disk or VM.
const checkTimeout = 20 * time.Second

func check[S comparable](calls []Call, initial S, transition func(S, Call) []S) (violation string, undecided bool) {
	calls = slices.Clone(calls)
	slices.SortFunc(calls, func(a, b Call) int { return cmp.Compare(a.Ended, b.Ended) })
	if result := checkLinearizable(calls, initial, transition); result != porcupine.Illegal {
		return "", result == porcupine.Unknown
	}
	// Later calls cannot make a prefix linearizable, so a binary search finds the shortest one.
	shortest := sort.Search(len(calls), func(n int) bool {
		return checkLinearizable(prefix(calls, n), initial, transition) == porcupine.Illegal
	})
	return "the outcome of\n" + describe(calls[shortest-1:shortest]) + "is not possible in\n" + describe(prefix(calls, shortest)), false
}

// prefix returns the history up to the end of the nth call. The calls are sorted by their end. A call that is running at that time counts
// as killed: it may or may not have taken effect.
func prefix(calls []Call, n int) []Call {
	known := slices.Clone(calls[:n])
	for _, call := range calls[n:] {
		if n > 0 && call.Started <= calls[n-1].Ended {
			call.Outcome = Killed
			known = append(known, call)
		}
	}
	return known
}

// maxEffectDelay bounds the time from the end of a failed or killed call to its effect.
const maxEffectDelay = int64(10 * time.Second)

// checkLinearizable searches for an order of the calls in which their outcomes are possible.
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

// describe formats the calls, one per line, in the order of their start.
func describe(calls []Call) string {
	slices.SortFunc(calls, func(a, b Call) int { return cmp.Compare(a.Started, b.Started) })
	var description strings.Builder
	for _, call := range calls {
		fmt.Fprintf(&description, "%10.3fs to %10.3fs %s %s", seconds(call.Started), seconds(call.Ended), call.Method, call.Subject)
		if call.VM != "" {
			fmt.Fprintf(&description, " %s", call.VM)
		}
		if call.SizeMiB != 0 {
			fmt.Fprintf(&description, " %d MiB", call.SizeMiB)
		}
		fmt.Fprintf(&description, ": %s\n", call.Outcome)
	}
	return description.String()
}

func seconds(timestamp int64) float64 { return time.Duration(timestamp).Seconds() }

// CountOutcomes returns the number of calls for each method and outcome, one per line.
func CountOutcomes(calls []Call) string {
	counts := map[string]int{}
	for _, call := range calls {
		counts[call.Method+" "+string(call.Outcome)]++
	}
	var lines strings.Builder
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintf(&lines, "%s: %d\n", name, counts[name])
	}
	return lines.String()
}

// Package attacks has what somebody with the token of the CPI's service account, or with root in a VM, may try to reach
// more than is theirs. docs/trust.md lists it; tests try each of it with the admission policy and without: this package's own
// against an API server, and test/e2e on real nodes.
package attacks

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Attack is something that somebody with the token tries.
type Attack struct {
	Name  string // what the attacker does
	Group string // what it is about
	From  string // the list that it is known from, and its name there
	Why   string // what it would give; for one that is possible, what bounds it

	// Forbidden: the account has no right to it, with and without the policy.
	Forbidden bool
	// Rules of the policy that refuse it: any of them may be the one that the API server names. Without any it is possible.
	Rules []string
	// Given are limits with which it is tried, in place of the shipped ones.
	Given map[string]string
	// Bound are limits with which the rules refuse it; with the shipped ones it is possible.
	Bound map[string]string
	// Classless: it needs a cluster without a default StorageClass.
	Classless bool
	// Since is the minor version of Kubernetes that has what it is about.
	Since int

	Try func(context.Context, *Attacker) error
}

// Possible reports whether the attack succeeds with the policy and its shipped limits.
func (a Attack) Possible() bool { return !a.Forbidden && (len(a.Rules) == 0 || a.Bound != nil) }

// denied begins what the API server says of a policy's refusal.
const denied = "ValidatingAdmissionPolicy"

// Judge returns what is wrong with the outcome of a try, with the policy or without, or nil. The limits are Given, or Bound.
func (a Attack) Judge(outcome error, policy, bound bool) error {
	refused := policy && len(a.Rules) > 0 && (a.Bound == nil || bound)
	switch {
	case a.Forbidden:
		if apierrors.IsForbidden(outcome) && !strings.Contains(outcome.Error(), denied) {
			return nil
		}
		return fmt.Errorf("%s: the account has a right to it: %w", a.Name, orNone(outcome))
	case refused:
		for _, rule := range a.Rules {
			if outcome != nil && strings.Contains(outcome.Error(), "rule "+rule+":") {
				return nil
			}
		}
		return fmt.Errorf("%s: the rule %s does not refuse it: %w", a.Name, strings.Join(a.Rules, " or "), orNone(outcome))
	case outcome != nil:
		return fmt.Errorf("%s: it is not possible: %w", a.Name, outcome)
	}
	return nil
}

func orNone(err error) error {
	if err == nil {
		return errAdmitted
	}
	return err
}

var errAdmitted = fmt.Errorf("it was admitted")

// Try is how an attack is made.
type Try = func(context.Context, *Attacker) error

// refused is an attack that one of these rules refuses, separated by "|".
func refused(rules, name, from, why string, try Try) Attack {
	return Attack{Name: name, From: from, Why: why, Rules: strings.Split(rules, "|"), Try: try}
}

// listed is an attack that stays possible.
func listed(name, from, bounds string, try Try) Attack {
	return Attack{Name: name, From: from, Why: bounds, Try: try}
}

// forbidden is an attack to which the account has no right.
func forbidden(name, from, why string, try Try) Attack {
	return Attack{Name: name, From: from, Why: why, Forbidden: true, Try: try}
}

// bounded is the attack when the rules refuse it only with this limit.
func (a Attack) bounded(key, value string) Attack {
	a.Bound = map[string]string{key: value}
	return a
}

// given is the attack when it is tried with this limit.
func (a Attack) given(key, value string) Attack {
	a.Given = map[string]string{key: value}
	return a
}

func (a Attack) since(minor int) Attack {
	a.Since = minor
	return a
}

func (a Attack) classless() Attack {
	a.Classless = true
	return a
}

// All are all attacks with the token.
func All() []Attack {
	var all []Attack
	for _, group := range []struct {
		name    string
		attacks [][]Attack
	}{
		{"VM Pods", [][]Attack{vmFolders(), vmNamespaces(), vmSecurity(), vmIdentity(), vmVolumes(), vmSidecars(), vmPlacement()}},
		{"Helper Pods", [][]Attack{helperPrograms(), helperSurroundings(), proofs(), changes()}},
		{"DaemonSets", [][]Attack{daemonSets()}},
		{"Storage", [][]Attack{claims(), snapshots()}},
		{"Services, budgets and other objects", [][]Attack{services(), budgets(), foreignObjects(), ownObjects(), looks(), networks()}},
		{"Rights", [][]Attack{rightsEscalation(), rightsPods(), rightsCluster(), rightsWorkloads()}},
	} {
		for _, some := range group.attacks {
			for _, attack := range some {
				attack.Group = group.name
				all = append(all, attack)
			}
		}
	}
	return all
}

// Count is how many attacks there are, with those of root in a VM, and how many of them are refused and listed as possible.
func Count() (all, refused, listed int) {
	for _, attack := range All() {
		all++
		if attack.Possible() {
			listed++
		}
	}
	for _, escape := range Escapes() {
		all++
		if len(escape.Reached) > 0 {
			listed++
		}
	}
	return all, all - listed, listed
}

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
	Name   string // what the attacker does
	Group  string // what it is about
	Source string // the list that it is known from, and its name there
	Why    string // what it would give; for one that is possible, what bounds it

	// Forbidden: the account has no right to it, with and without the policy.
	Forbidden bool
	// Rules of the policy that refuse it: any of them may be the one that the API server names. Without any it is possible.
	Rules []string
	// Limits are limits with which it is tried, in place of the shipped ones.
	Limits map[string]string
	// RefusingLimits are limits with which the rules refuse it; with the shipped ones it is possible.
	RefusingLimits map[string]string
	// NoDefaultStorageClass: it needs a cluster without a default StorageClass.
	NoDefaultStorageClass bool
	// MinMinor is the minor version of Kubernetes that has what it is about.
	MinMinor int

	Try func(context.Context, *Attacker) error
}

// Possible reports whether the attack succeeds with the policy and its shipped limits.
func (a Attack) Possible() bool {
	return !a.Forbidden && (len(a.Rules) == 0 || a.RefusingLimits != nil)
}

// denialPrefix begins what the API server says of a policy's refusal.
const denialPrefix = "ValidatingAdmissionPolicy"

// CheckOutcome returns what is wrong with the outcome of a try, with the policy or without, or nil. The limits are Given, or Bound.
func (a Attack) CheckOutcome(outcome error, policy, bound bool) error {
	refused := policy && len(a.Rules) > 0 && (a.RefusingLimits == nil || bound)
	switch {
	case a.Forbidden:
		if apierrors.IsForbidden(outcome) && !strings.Contains(outcome.Error(), denialPrefix) {
			return nil
		}
		return fmt.Errorf("%s: the account has a right to it: %w", a.Name, orAdmitted(outcome))
	case refused:
		for _, rule := range a.Rules {
			if outcome != nil && strings.Contains(outcome.Error(), "rule "+rule+":") {
				return nil
			}
		}
		return fmt.Errorf("%s: the rule %s does not refuse it: %w", a.Name, strings.Join(a.Rules, " or "), orAdmitted(outcome))
	case outcome != nil:
		return fmt.Errorf("%s: it is not possible: %w", a.Name, outcome)
	}
	return nil
}

func orAdmitted(err error) error {
	if err == nil {
		return errAdmitted
	}
	return err
}

var errAdmitted = fmt.Errorf("it was admitted")

// TryFunc is how an attack is made.
type TryFunc = func(context.Context, *Attacker) error

// refused is an attack that one of these rules refuses, separated by "|".
func refused(rules, name, from, why string, try TryFunc) Attack {
	return Attack{Name: name, Source: from, Why: why, Rules: strings.Split(rules, "|"), Try: try}
}

// listed is an attack that stays possible.
func listed(name, from, bounds string, try TryFunc) Attack {
	return Attack{Name: name, Source: from, Why: bounds, Try: try}
}

// forbidden is an attack to which the account has no right.
func forbidden(name, from, why string, try TryFunc) Attack {
	return Attack{Name: name, Source: from, Why: why, Forbidden: true, Try: try}
}

// refusedWith is the attack when the rules refuse it only with this limit.
func (a Attack) refusedWith(key, value string) Attack {
	a.RefusingLimits = map[string]string{key: value}
	return a
}

// withLimit is the attack when it is tried with this limit.
func (a Attack) withLimit(key, value string) Attack {
	a.Limits = map[string]string{key: value}
	return a
}

func (a Attack) sinceMinor(minor int) Attack {
	a.MinMinor = minor
	return a
}

func (a Attack) withoutDefaultStorageClass() Attack {
	a.NoDefaultStorageClass = true
	return a
}

// All are all attacks with the token.
func All() []Attack {
	var all []Attack
	for _, group := range []struct {
		name    string
		attacks [][]Attack
	}{
		{"VM Pods", [][]Attack{vmHostPaths(), vmNamespaces(), vmSecurity(), vmIdentity(), vmVolumes(), vmSidecars(), vmPlacement()}},
		{"Helper Pods", [][]Attack{helperPrograms(), helperPodSpecs(), exclusivityChecks(), podChanges()}},
		{"DaemonSets", [][]Attack{daemonSets()}},
		{"Storage", [][]Attack{pvcAttacks(), snapshotAttacks()}},
		{"Services, budgets and other objects", [][]Attack{serviceAttacks(), pdbAttacks(), foreignObjects(), ownObjects(), readAttacks(), networkAttacks()}},
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
		if len(escape.SucceedsFrom) > 0 {
			listed++
		}
	}
	return all, all - listed, listed
}

// Package attacks contains attacks with the token of the CPI's service account, and attacks of root in a VM. docs/trust.md lists
// them. Tests try each attack with and without the admission policy: the tests of this package with an API server only, those of
// test/e2e with real nodes.
package attacks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Attack is an attempt to do something with the token that is not the CPI's task.
type Attack struct {
	Name   string // what the attacker creates or does
	Group  string // heading of its table in docs/trust.md
	Source string // "LIST: ENTRY" of the published list that describes it; empty if there is none
	Note   string // what the attacker gains; for a possible attack, its reason or mitigation

	// Forbidden is true if the account has no right to it, with and without the policy.
	Forbidden bool
	// Rules are the rules of the policy that refuse it. The API server may name any of them. Without rules the attack is possible.
	Rules []string
	// Limits replace the default limits when the tests try it.
	Limits map[string]string
	// RefusingLimits are limits with which the rules refuse it. With the default limits it is possible.
	RefusingLimits map[string]string
	// NoDefaultStorageClass is true if it requires a cluster without a default StorageClass.
	NoDefaultStorageClass bool
	// MinMinor is the minor version of Kubernetes that the attack requires.
	MinMinor int

	Try func(context.Context, *Attacker) error
}

// Possible reports whether the attack succeeds with the policy and its default limits.
func (a Attack) Possible() bool {
	return !a.Forbidden && (len(a.Rules) == 0 || a.RefusingLimits != nil)
}

// denialPrefix begins the API server's message about an object that a policy refuses.
const denialPrefix = "ValidatingAdmissionPolicy"

// CheckOutcome returns an error if the outcome of Try is not the expected one. enforced is true if the policy was enforced, and
// refusingLimits is true if RefusingLimits were set.
func (a Attack) CheckOutcome(outcome error, enforced, refusingLimits bool) error {
	refused := enforced && len(a.Rules) > 0 && (a.RefusingLimits == nil || refusingLimits)
	switch {
	case a.Forbidden:
		if apierrors.IsForbidden(outcome) && !strings.Contains(outcome.Error(), denialPrefix) {
			return nil
		}
		return fmt.Errorf("%s: the account has this right: %w", a.Name, orAdmitted(outcome))
	case refused:
		for _, rule := range a.Rules {
			if outcome != nil && strings.Contains(outcome.Error(), "rule "+rule+":") {
				return nil
			}
		}
		return fmt.Errorf("%s: not refused by rule %s: %w", a.Name, strings.Join(a.Rules, " or "), orAdmitted(outcome))
	case outcome != nil:
		return fmt.Errorf("%s: not possible: %w", a.Name, outcome)
	}
	return nil
}

// orAdmitted returns err, or errAdmitted if it is nil.
func orAdmitted(err error) error {
	if err == nil {
		return errAdmitted
	}
	return err
}

var errAdmitted = errors.New("the request was admitted")

// TryFunc carries out an attack, and returns the API server's error.
type TryFunc = func(context.Context, *Attacker) error

// dedicatedNamespace is the mitigation of attacks on other objects of the namespace.
const dedicatedNamespace = "use a dedicated namespace"

// refused returns an attack that one of these rules refuses. The rules are separated by "|".
func refused(rules, name, source, gain string, try TryFunc) Attack {
	return Attack{Name: name, Source: source, Note: gain, Rules: strings.Split(rules, "|"), Try: try}
}

// possible returns an attack that succeeds in spite of the policy.
func possible(name, source, mitigation string, try TryFunc) Attack {
	return Attack{Name: name, Source: source, Note: mitigation, Try: try}
}

// forbidden returns an attack to which the account has no right.
func forbidden(name, source, gain string, try TryFunc) Attack {
	return Attack{Name: name, Source: source, Note: gain, Forbidden: true, Try: try}
}

// refusedWith returns the attack as one that the rules refuse only with this limit.
func (a Attack) refusedWith(key, value string) Attack {
	a.RefusingLimits = map[string]string{key: value}
	return a
}

// withLimit returns the attack as one that the tests try with this limit.
func (a Attack) withLimit(key, value string) Attack {
	a.Limits = map[string]string{key: value}
	return a
}

// sinceMinor returns the attack as one that requires this minor version of Kubernetes.
func (a Attack) sinceMinor(minor int) Attack {
	a.MinMinor = minor
	return a
}

// withoutDefaultStorageClass returns the attack as one that requires a cluster without a default StorageClass.
func (a Attack) withoutDefaultStorageClass() Attack {
	a.NoDefaultStorageClass = true
	return a
}

// All returns all attacks with the token.
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
		{"Services, PodDisruptionBudgets and other objects", [][]Attack{
			serviceAttacks(), pdbAttacks(), foreignObjects(), ownObjects(), readAttacks(), networkAttacks(),
		}},
		{"Rights", [][]Attack{rightsEscalation(), rightsPods(), rightsCluster(), rightsWorkloads()}},
	} {
		for _, attack := range slices.Concat(group.attacks...) {
			attack.Group = group.name
			all = append(all, attack)
		}
	}
	return all
}

// Count returns the number of all attacks, including those of root in a VM, and the numbers of those that fail and that succeed.
func Count() (total, failing, succeeding int) {
	for _, attack := range All() {
		total++
		if attack.Possible() {
			succeeding++
		}
	}
	for _, escape := range Escapes() {
		total++
		if len(escape.SucceedsFrom) > 0 {
			succeeding++
		}
	}
	return total, total - succeeding, succeeding
}

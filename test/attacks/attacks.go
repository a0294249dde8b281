// Package attacks contains attacks with the token of the CPI's service account, and attacks by root in a VM. Tables in the docs list them.
// The tests try each attack with and without the admission policy: the tests of this package with an API server only, the tests of
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

// Attack is an attempt to misuse the token.
type Attack struct {
	Name   string // what the attacker creates or does
	Source string // "LIST: ENTRY" of the published list that describes it, or empty
	Note   string // what the attacker gains, or the reason or mitigation of a possible attack

	// Forbidden is true if the account does not have the required permission, with or without the policy.
	Forbidden bool
	// Rules are the rules of the policy that reject it. The API server may name any of them. Without rules, the attack is possible.
	Rules []string
	// Limits replace the default limits in the tests.
	Limits map[string]string
	// RejectingLimits are limits with which the rules reject it. With the default limits, it is possible.
	RejectingLimits map[string]string
	// NoDefaultStorageClass is true if the attack requires a cluster without a default StorageClass.
	NoDefaultStorageClass bool
	// MinMinor is the lowest minor version of Kubernetes that supports the attack.
	MinMinor int

	Try func(context.Context, *Attacker) error
}

// Possible reports whether the attack succeeds with the policy and its default limits.
func (a Attack) Possible() bool {
	return !a.Forbidden && (len(a.Rules) == 0 || a.RejectingLimits != nil)
}

// denialPrefix begins the API server's message about an object that a policy rejects.
const denialPrefix = "ValidatingAdmissionPolicy"

// CheckOutcome returns an error unless Try had the expected outcome. enforced reports whether the policy was enforced, and rejectingLimits
// whether RejectingLimits were set.
func (a Attack) CheckOutcome(outcome error, enforced, rejectingLimits bool) error {
	rejected := enforced && len(a.Rules) > 0 && (a.RejectingLimits == nil || rejectingLimits)
	switch {
	case a.Forbidden:
		if apierrors.IsForbidden(outcome) && !strings.Contains(outcome.Error(), denialPrefix) {
			return nil
		}
		return fmt.Errorf("%s: the account has this permission: %w", a.Name, orAdmitted(outcome))
	case rejected:
		for _, rule := range a.Rules {
			if outcome != nil && strings.Contains(outcome.Error(), "rule "+rule+":") {
				return nil
			}
		}
		return fmt.Errorf("%s: not rejected by rule %s: %w", a.Name, strings.Join(a.Rules, " or "), orAdmitted(outcome))
	case outcome != nil:
		return fmt.Errorf("%s: not possible: %w", a.Name, outcome)
	}
	return nil
}

// orAdmitted returns err, or errAdmitted if err is nil.
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

// rejected returns an attack that one of the rules rejects. The rules are separated by "|".
func rejected(rules, name, source, gain string, try TryFunc) Attack {
	return Attack{Name: name, Source: source, Note: gain, Rules: strings.Split(rules, "|"), Try: try}
}

// possible returns an attack that succeeds despite the policy.
func possible(name, source, mitigation string, try TryFunc) Attack {
	return Attack{Name: name, Source: source, Note: mitigation, Try: try}
}

// forbidden returns an attack that requires a permission the account does not have.
func forbidden(name, source, gain string, try TryFunc) Attack {
	return Attack{Name: name, Source: source, Note: gain, Forbidden: true, Try: try}
}

// rejectedWith returns a copy of the attack that the rules reject only with this limit.
func (a Attack) rejectedWith(key, value string) Attack {
	a.RejectingLimits = map[string]string{key: value}
	return a
}

// withLimit returns a copy of the attack that the tests try with this limit.
func (a Attack) withLimit(key, value string) Attack {
	a.Limits = map[string]string{key: value}
	return a
}

// sinceMinor returns a copy of the attack that requires this minor version of Kubernetes.
func (a Attack) sinceMinor(minor int) Attack {
	a.MinMinor = minor
	return a
}

// withoutDefaultStorageClass returns a copy of the attack that requires a cluster without a default StorageClass.
func (a Attack) withoutDefaultStorageClass() Attack {
	a.NoDefaultStorageClass = true
	return a
}

// All returns all attacks with the token.
func All() []Attack {
	return slices.Concat(
		vmHostPaths(), vmNamespaces(), vmSecurity(), vmIdentity(), vmVolumes(), vmSidecars(), vmPlacement(),
		helperCommandAttacks(), helperImageAttacks(), helperPodSpecAttacks(), exclusivityCheckAttacks(), podUpdateAttacks(),
		pvcAttacks(), snapshotAttacks(), serviceAttacks(), pdbAttacks(), unmanagedObjects(), cpiObjects(), readAttacks(),
		permissionsEscalation(), permissionsPods(), permissionsCluster(), permissionsWorkloads(),
	)
}

// Count returns the numbers of all, of failing and of succeeding attacks, including those by root in a VM.
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

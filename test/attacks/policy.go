package attacks

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	admission "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"
)

// EnforcedLabels enforce the policy in a namespace.
var EnforcedLabels = map[string]string{"bosh.cloudfoundry.org/admission-policy": "on"}

// Policy contains the objects of manifests/admission-policy.yaml, or copies of them.
type Policy struct {
	policies []admission.ValidatingAdmissionPolicy
	bindings []admission.ValidatingAdmissionPolicyBinding
}

// ReadPolicy reads the policy from the repository with this root.
func ReadPolicy(root string) (Policy, error) {
	var policy Policy
	raw, err := os.ReadFile(root + "/manifests/admission-policy.yaml")
	if err != nil {
		return policy, err
	}
	for document := range strings.SplitSeq(string(raw), "\n---\n") {
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal([]byte(document), &kind); err != nil {
			return policy, err
		}
		if kind.Kind == "ValidatingAdmissionPolicy" {
			policy.policies = append(policy.policies, admission.ValidatingAdmissionPolicy{})
			err = yaml.UnmarshalStrict([]byte(document), &policy.policies[len(policy.policies)-1])
		} else {
			policy.bindings = append(policy.bindings, admission.ValidatingAdmissionPolicyBinding{})
			err = yaml.UnmarshalStrict([]byte(document), &policy.bindings[len(policy.bindings)-1])
		}
		if err != nil {
			return policy, err
		}
	}
	return policy, nil
}

// Rule is a removable part of a policy: a validation, or an operation on a kind of objects to which the policy applies.
type Rule struct {
	Policy string
	Name   string // name of the validation, or "OPERATION KIND"

	remove func(*admission.ValidatingAdmissionPolicy)
	// rejects reports whether a validation is the only one that rejects an attack. For an operation, it reports whether only this policy
	// rejects the attack.
	rejects func(Attack) bool
}

// Rules returns all validations, operations and kinds of the policy.
func (p Policy) Rules() []Rule {
	var rules []Rule
	for _, policy := range p.policies {
		var names []string
		for i, validation := range policy.Spec.Validations {
			name := ruleName(validation)
			names = append(names, name)
			rules = append(rules, Rule{policy.Name, name, func(reduced *admission.ValidatingAdmissionPolicy) {
				reduced.Spec.Validations = slices.Delete(slices.Clone(reduced.Spec.Validations), i, i+1)
			}, func(attack Attack) bool { return slices.Equal(attack.Rules, []string{name}) }})
		}
		rules = append(rules, matchRules(policy, names)...)
	}
	return rules
}

// matchRules returns a rule for each operation on each kind to which the policy applies. names are the names of its validations.
func matchRules(policy admission.ValidatingAdmissionPolicy, names []string) []Rule {
	var rules []Rule
	isRejectedByPolicy := func(attack Attack) bool {
		ofOtherPolicy := func(rule string) bool { return !slices.Contains(names, rule) }
		return len(attack.Rules) > 0 && attack.Limits == nil && attack.RejectingLimits == nil && !slices.ContainsFunc(attack.Rules, ofOtherPolicy)
	}
	for i, matched := range policy.Spec.MatchConstraints.ResourceRules {
		for _, kind := range matched.Resources {
			for _, operation := range matched.Operations {
				rules = append(rules, Rule{policy.Name, fmt.Sprint(operation, " ", kind), func(reduced *admission.ValidatingAdmissionPolicy) {
					reduced.Spec.MatchConstraints = reduced.Spec.MatchConstraints.DeepCopy()
					resourceRules := &reduced.Spec.MatchConstraints.ResourceRules
					otherKinds, sameKind := *(*resourceRules)[i].DeepCopy(), *(*resourceRules)[i].DeepCopy()
					otherKinds.Resources = slices.DeleteFunc(otherKinds.Resources, func(k string) bool { return k == kind })
					sameKind.Resources = []string{kind}
					sameKind.Operations = slices.DeleteFunc(sameKind.Operations, func(o admission.OperationType) bool { return o == operation })
					*resourceRules = slices.DeleteFunc(slices.Replace(*resourceRules, i, i+1, otherKinds, sameKind), func(r admission.NamedRuleWithOperations) bool {
						return len(r.Resources) == 0 || len(r.Operations) == 0
					})
				}, isRejectedByPolicy})
			}
		}
	}
	return rules
}

// ruleName returns the name at the beginning of a validation's message: "rule NAME: ...".
func ruleName(validation admission.Validation) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(validation.Message, "rule "), ":")
	return name
}

// Without returns the policy without the rule.
func (p Policy) Without(rule Rule) Policy {
	reduced := p
	reduced.policies = slices.Clone(p.policies)
	for i := range reduced.policies {
		if reduced.policies[i].Name == rule.Policy {
			rule.remove(&reduced.policies[i])
		}
	}
	return reduced
}

// ScopedCopy returns a copy of the policy. The names of its objects have the suffix. The copy applies in all namespaces, to requests that
// match a CEL expression: condition returns it for the name of a policy.
func (p Policy) ScopedCopy(suffix string, condition func(policy string) string) Policy {
	var copied Policy
	for _, policy := range p.policies {
		policyCopy := *policy.DeepCopy()
		policyCopy.Name += suffix
		policyCopy.Spec.MatchConditions = []admission.MatchCondition{{Name: "copy", Expression: condition(policy.Name)}}
		copied.policies = append(copied.policies, policyCopy)
	}
	for _, binding := range p.bindings {
		bindingCopy := *binding.DeepCopy()
		bindingCopy.Name += suffix
		bindingCopy.Spec.PolicyName += suffix
		bindingCopy.Spec.MatchResources = nil
		copied.bindings = append(copied.bindings, bindingCopy)
	}
	return copied
}

// Only returns the policy with this name.
func (p Policy) Only(name string) Policy {
	var part Policy
	for i, policy := range p.policies {
		if policy.Name == name {
			part.policies, part.bindings = append(part.policies, policy), append(part.bindings, p.bindings[i])
		}
	}
	return part
}

// Create creates the policy's objects.
func (p Policy) Create(ctx context.Context, cluster kubernetes.Interface) error {
	client := cluster.AdmissionregistrationV1()
	var err error
	for _, policy := range p.policies {
		_, createErr := client.ValidatingAdmissionPolicies().Create(ctx, &policy, metav1.CreateOptions{})
		err = errors.Join(err, createErr)
	}
	for _, binding := range p.bindings {
		_, createErr := client.ValidatingAdmissionPolicyBindings().Create(ctx, &binding, metav1.CreateOptions{})
		err = errors.Join(err, createErr)
	}
	return err
}

// Delete deletes the policy's objects.
func (p Policy) Delete(ctx context.Context, cluster kubernetes.Interface) error {
	client := cluster.AdmissionregistrationV1()
	var err error
	for _, binding := range p.bindings {
		err = errors.Join(err, client.ValidatingAdmissionPolicyBindings().Delete(ctx, binding.Name, metav1.DeleteOptions{}))
	}
	for _, policy := range p.policies {
		err = errors.Join(err, client.ValidatingAdmissionPolicies().Delete(ctx, policy.Name, metav1.DeleteOptions{}))
	}
	return err
}

// CheckEnforced returns an error until each of the policies rejects an attack. The API server starts to enforce a policy and its limits a
// moment after their creation.
func (p Policy) CheckEnforced(ctx context.Context, a *Attacker) error {
	for _, policy := range p.policies {
		if !slices.ContainsFunc(All(), func(attack Attack) bool { return policyRejects(ctx, policy, a, attack) }) {
			return fmt.Errorf("policy %s does not reject any attack yet", policy.Name)
		}
	}
	return nil
}

// policyRejects reports whether one of the policy's rules rejects the attack.
func policyRejects(ctx context.Context, policy admission.ValidatingAdmissionPolicy, a *Attacker, attack Attack) bool {
	if !slices.ContainsFunc(policy.Spec.Validations, func(v admission.Validation) bool { return slices.Contains(attack.Rules, ruleName(v)) }) {
		return false
	}
	err := attack.Try(ctx, a)
	return err != nil && strings.Contains(err.Error(), denialPrefix+" '"+policy.Name+"'") && strings.Contains(err.Error(), "rule ")
}

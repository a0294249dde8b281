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

// EnforcedLabels is the label of namespaces in which the policy holds.
var EnforcedLabels = map[string]string{"bosh.cloudfoundry.org/admission-policy": "on"}

// Policy is manifests/admission-policy.yaml, or a copy of it.
type Policy struct {
	policies []admission.ValidatingAdmissionPolicy
	bindings []admission.ValidatingAdmissionPolicyBinding
}

// ReadPolicy reads the policy of the repository with this root.
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

// Rule is a part of the policy that can be taken out: a validation, or the objects and operations for which one is asked.
type Rule struct {
	Policy string
	Name   string // of the validation, or the operation and the kind

	remove  func(*admission.ValidatingAdmissionPolicy)
	refuses func(Attack) bool // whether it alone refuses an attack; of what a policy is asked for, any of the policy's attacks
}

// Rules are all parts of the policy.
func (p Policy) Rules() []Rule {
	var rules []Rule
	for _, policy := range p.policies {
		var names []string
		for i, validation := range policy.Spec.Validations {
			name := ruleName(validation)
			names = append(names, name)
			rules = append(rules, Rule{policy.Name, name, func(without *admission.ValidatingAdmissionPolicy) {
				without.Spec.Validations = slices.Delete(slices.Clone(without.Spec.Validations), i, i+1)
			}, func(attack Attack) bool { return slices.Equal(attack.Rules, []string{name}) }})
		}
		rules = append(rules, matchRules(policy, names)...)
	}
	return rules
}

// matchRules are the kinds and operations for which the policy is asked, one by one.
func matchRules(policy admission.ValidatingAdmissionPolicy, names []string) []Rule {
	var rules []Rule
	isRefusedByPolicy := func(attack Attack) bool {
		return len(attack.Rules) > 0 && attack.Limits == nil && attack.RefusingLimits == nil && !slices.ContainsFunc(attack.Rules, func(rule string) bool { return !slices.Contains(names, rule) })
	}
	for i, matched := range policy.Spec.MatchConstraints.ResourceRules {
		for _, kind := range matched.Resources {
			for _, operation := range matched.Operations {
				rules = append(rules, Rule{policy.Name, fmt.Sprint(operation, " ", kind), func(without *admission.ValidatingAdmissionPolicy) {
					without.Spec.MatchConstraints = without.Spec.MatchConstraints.DeepCopy()
					all := &without.Spec.MatchConstraints.ResourceRules
					others, rest := *(*all)[i].DeepCopy(), *(*all)[i].DeepCopy()
					others.Resources = slices.DeleteFunc(others.Resources, func(each string) bool { return each == kind })
					rest.Resources = []string{kind}
					rest.Operations = slices.DeleteFunc(rest.Operations, func(each admission.OperationType) bool { return each == operation })
					*all = slices.DeleteFunc(slices.Replace(*all, i, i+1, others, rest), func(each admission.NamedRuleWithOperations) bool {
						return len(each.Resources) == 0 || len(each.Operations) == 0
					})
				}, isRefusedByPolicy})
			}
		}
	}
	return rules
}

// ruleName is the name at the beginning of a validation's message.
func ruleName(validation admission.Validation) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(validation.Message, "rule "), ":")
	return name
}

// Without is the policy without the rule.
func (p Policy) Without(rule Rule) Policy {
	without := p
	without.policies = slices.Clone(p.policies)
	for i := range without.policies {
		if without.policies[i].Name == rule.Policy {
			rule.remove(&without.policies[i])
		}
	}
	return without
}

// ScopedCopy is a copy of the policy that holds where the condition says, by the name of the original; its names end with the suffix.
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

// Only is the one of the policies with this name.
func (p Policy) Only(name string) Policy {
	var part Policy
	for i, policy := range p.policies {
		if policy.Name == name {
			part.policies, part.bindings = append(part.policies, policy), append(part.bindings, p.bindings[i])
		}
	}
	return part
}

// Create makes the policy's objects.
func (p Policy) Create(ctx context.Context, cluster kubernetes.Interface) error {
	client := cluster.AdmissionregistrationV1()
	var err error
	for _, policy := range p.policies {
		_, failed := client.ValidatingAdmissionPolicies().Create(ctx, &policy, metav1.CreateOptions{})
		err = errors.Join(err, failed)
	}
	for _, binding := range p.bindings {
		_, failed := client.ValidatingAdmissionPolicyBindings().Create(ctx, &binding, metav1.CreateOptions{})
		err = errors.Join(err, failed)
	}
	return err
}

// Delete deletes them.
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

// CheckEnforced returns nil once each of the policies refuses something: an API server knows of a policy, and of its limits, a moment after
// they were created.
func (p Policy) CheckEnforced(ctx context.Context, a *Attacker) error {
	for _, policy := range p.policies {
		if !slices.ContainsFunc(All(), func(attack Attack) bool { return policyRefuses(ctx, policy, a, attack) }) {
			return fmt.Errorf("%s refuses nothing", policy.Name)
		}
	}
	return nil
}

// policyRefuses reports whether one of the policy's rules refuses the attack.
func policyRefuses(ctx context.Context, policy admission.ValidatingAdmissionPolicy, a *Attacker, attack Attack) bool {
	if !slices.ContainsFunc(policy.Spec.Validations, func(v admission.Validation) bool { return slices.Contains(attack.Rules, ruleName(v)) }) {
		return false
	}
	err := attack.Try(ctx, a)
	return err != nil && strings.Contains(err.Error(), denialPrefix+" '"+policy.Name+"'") && strings.Contains(err.Error(), "rule ")
}

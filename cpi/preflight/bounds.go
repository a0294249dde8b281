package preflight

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/manifest"
)

// few is how many Pods, or volumes, are told of as the last.
const few = 10

// demand is what a Pod of one kind takes of a quota.
type demand struct {
	what  string
	takes corev1.ResourceList
}

// demands are those of a small machine and of a helper.
func (s *subject) demands(ctx context.Context) ([]demand, error) {
	of := s.samples(ctx)
	machine, err := of.machine()
	if err != nil {
		return nil, err
	}
	return []demand{{"a small VM", takes(machine)}, {"an attachment", takes(of.attachment(machine))}}, nil
}

// takes is what a quota counts of the Pod, by the quota's names.
func takes(pod *corev1.Pod) corev1.ResourceList {
	all := corev1.ResourceList{
		corev1.ResourcePods: resource.MustParse("1"), "count/pods": resource.MustParse("1"),
	}
	wants := manifest.Own(pod).Resources
	for name, amount := range wants.Requests {
		all[name], all["requests."+name] = amount, amount
	}
	for name, amount := range wants.Limits {
		all["limits."+name] = amount
	}
	return all
}

func lookAtQuotas(ctx context.Context, s *subject) finding {
	found, err := s.client.Quotas().List(ctx, kube.Selection{})
	if err != nil {
		return failed(err, rightsOfChecks)
	}
	demands, err := s.demands(ctx)
	if err != nil {
		return fails(err.Error(), "correct the configuration")
	}
	var said []string
	least := int64(-1)
	for _, quota := range found.Items {
		if len(quota.Spec.Scopes) > 0 || quota.Spec.ScopeSelector != nil {
			said = append(said, quota.Name+" is for some Pods alone")
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(quota.Status.Hard)) {
			for _, each := range demands {
				fits, counts := room(quota, name, each.takes)
				if !counts {
					continue
				}
				if least < 0 || fits < least {
					least = fits
				}
				hard, used := quota.Status.Hard[name], quota.Status.Used[name]
				said = append(said, fmt.Sprintf("%s: %s of %s %s used, room for %s %d times",
					quota.Name, used.String(), hard.String(), name, each.what, fits))
			}
		}
	}
	detail := strings.Join(said, "; ")
	switch {
	case len(found.Items) == 0:
		return ok("the namespace has none")
	case least == 0:
		return fails(detail, "raise the ResourceQuota, or take another namespace: a VM takes one Pod, and one more for each of its disks")
	case least > 0 && least < few:
		return warns(detail, "raise the ResourceQuota in time: a VM takes one Pod, and one more for each of its disks")
	}
	return ok(detail)
}

// room is how many such Pods there is room for; counts is whether the quota counts what they take.
func room(quota *corev1.ResourceQuota, name corev1.ResourceName, takes corev1.ResourceList) (fits int64, counts bool) {
	takesOf, counts := takes[name]
	if !counts || takesOf.IsZero() {
		return 0, false
	}
	left := quota.Status.Hard[name].DeepCopy()
	left.Sub(quota.Status.Used[name])
	return max(0, left.MilliValue()) / takesOf.MilliValue(), true
}

func lookAtLimitRanges(ctx context.Context, s *subject) finding {
	found, err := s.client.LimitRanges().List(ctx, kube.Selection{})
	if err != nil {
		return failed(err, rightsOfChecks)
	}
	var refusing, changing []string
	for _, bounds := range found.Items {
		for _, item := range bounds.Spec.Limits {
			if item.Type != corev1.LimitTypeContainer && item.Type != corev1.LimitTypePod {
				continue
			}
			for _, name := range slices.Sorted(maps.Keys(s.config.Pods.HelperLimits)) {
				limit := s.config.Pods.HelperLimits[name]
				if most, bounded := item.Max[name]; bounded && limit.Cmp(most) > 0 {
					refusing = append(refusing, fmt.Sprintf("%s: a %s may have %s %s, and pods.helper_limits say %s",
						bounds.Name, item.Type, most.String(), name, limit.String()))
				}
			}
			for _, name := range slices.Sorted(maps.Keys(item.Default)) {
				amount := item.Default[name]
				changing = append(changing, fmt.Sprintf("%s: a VM whose cloud_properties name no %s gets %s", bounds.Name, name, amount.String()))
			}
		}
	}
	switch {
	case len(refusing) > 0:
		return fails(strings.Join(refusing, "; "), "lower pods.helper_limits, or raise the LimitRange")
	case len(changing) > 0:
		return warns(strings.Join(changing, "; "), "name cpu and memory in every VM type")
	case len(found.Items) == 0:
		return ok("the namespace has none")
	}
	return ok("helpers keep within them")
}

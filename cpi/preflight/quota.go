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

// lowCapacity is how many Pods, or volumes, are told of as the last.
const lowCapacity = 10

// demand is what a Pod of one kind takes of a quota.
type demand struct {
	name      string
	resources corev1.ResourceList
}

// demands are those of a small machine and of a helper.
func (s *clusterState) demands(ctx context.Context) ([]demand, error) {
	samples := s.newSamples(ctx)
	vmPod, err := samples.buildVMPod()
	if err != nil {
		return nil, err
	}
	return []demand{{"a small VM", quotaUsage(vmPod)}, {"an attachment", quotaUsage(samples.buildAttachmentPod(vmPod))}}, nil
}

// quotaUsage is what a quota counts of the Pod, by the quota's names.
func quotaUsage(pod *corev1.Pod) corev1.ResourceList {
	all := corev1.ResourceList{
		corev1.ResourcePods: resource.MustParse("1"), "count/pods": resource.MustParse("1"),
	}
	wants := manifest.OwnContainer(pod).Resources
	for name, amount := range wants.Requests {
		all[name], all["requests."+name] = amount, amount
	}
	for name, amount := range wants.Limits {
		all["limits."+name] = amount
	}
	return all
}

func inspectQuotas(ctx context.Context, s *clusterState) finding {
	found, err := s.client.ResourceQuotas().List(ctx, kube.Selection{})
	if err != nil {
		return errorFinding(err, checkRightsFile)
	}
	demands, err := s.demands(ctx)
	if err != nil {
		return fail(err.Error(), "correct the configuration")
	}
	var messages []string
	least := int64(-1)
	for _, quota := range found.Items {
		if len(quota.Spec.Scopes) > 0 || quota.Spec.ScopeSelector != nil {
			messages = append(messages, quota.Name+" is for some Pods alone")
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(quota.Status.Hard)) {
			for _, each := range demands {
				fits, counts := quotaCapacity(quota, name, each.resources)
				if !counts {
					continue
				}
				if least < 0 || fits < least {
					least = fits
				}
				hard, used := quota.Status.Hard[name], quota.Status.Used[name]
				messages = append(messages, fmt.Sprintf("%s: %s of %s %s used, room for %s %d times",
					quota.Name, used.String(), hard.String(), name, each.name, fits))
			}
		}
	}
	detail := strings.Join(messages, "; ")
	switch {
	case len(found.Items) == 0:
		return pass("the namespace has none")
	case least == 0:
		return fail(detail, "raise the ResourceQuota, or take another namespace: a VM takes one Pod, and one more for each of its disks")
	case least > 0 && least < lowCapacity:
		return warn(detail, "raise the ResourceQuota in time: a VM takes one Pod, and one more for each of its disks")
	}
	return pass(detail)
}

// quotaCapacity is how many such Pods there is room for; counts is whether the quota counts what they take.
func quotaCapacity(quota *corev1.ResourceQuota, name corev1.ResourceName, demanded corev1.ResourceList) (fits int64, counts bool) {
	amount, counts := demanded[name]
	if !counts || amount.IsZero() {
		return 0, false
	}
	remaining := quota.Status.Hard[name].DeepCopy()
	remaining.Sub(quota.Status.Used[name])
	return max(0, remaining.MilliValue()) / amount.MilliValue(), true
}

func inspectLimitRanges(ctx context.Context, s *clusterState) finding {
	found, err := s.client.LimitRanges().List(ctx, kube.Selection{})
	if err != nil {
		return errorFinding(err, checkRightsFile)
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
		return fail(strings.Join(refusing, "; "), "lower pods.helper_limits, or raise the LimitRange")
	case len(changing) > 0:
		return warn(strings.Join(changing, "; "), "name cpu and memory in every VM type")
	case len(found.Items) == 0:
		return pass("the namespace has none")
	}
	return pass("helpers keep within them")
}

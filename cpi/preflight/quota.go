package preflight

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
)

// lowCapacity is the number of Pods or volumes below which checks warn.
const lowCapacity = 10

// demand is the quota usage of one kind of Pod.
type demand struct {
	name          string // plural
	priorityClass string
	resources     corev1.ResourceList
}

// demands returns the demands of a small VM and of an attachment Pod.
func (s *clusterState) demands(ctx context.Context) ([]demand, error) {
	samples := s.newSamples(ctx)
	vmPod, err := samples.buildVMPod()
	if err != nil {
		return nil, err
	}
	attachment := samples.buildAttachmentPod(vmPod)
	return []demand{
		{"small VMs", vmPod.Spec.PriorityClassName, quotaUsage(manifest.OwnContainer(vmPod.Pod).Resources)},
		{"attachment Pods", attachment.Spec.PriorityClassName, quotaUsage(manifest.OwnContainer(attachment.Pod).Resources)},
	}, nil
}

// quotaUsage returns the resources of a Pod with one container by their names in ResourceQuotas.
func quotaUsage(resources corev1.ResourceRequirements) corev1.ResourceList {
	usage := corev1.ResourceList{
		corev1.ResourcePods: resource.MustParse("1"), "count/pods": resource.MustParse("1"),
	}
	for name, amount := range resources.Requests {
		usage[name], usage["requests."+name] = amount, amount
	}
	for name, amount := range resources.Limits {
		usage["limits."+name] = amount
	}
	return usage
}

func inspectQuotas(ctx context.Context, s *clusterState) finding {
	found, err := s.client.ResourceQuotas().List(ctx, kube.Selection{})
	if err != nil {
		return errorFinding(err, checkPermissionsFile)
	}
	demands, err := s.demands(ctx)
	if err != nil {
		return fail(err.Error(), "correct the configuration")
	}
	var messages []string
	least := int64(-1)
	for _, quota := range found.Items {
		classes, scoped := priorityClassScope(quota)
		if scoped && classes == nil {
			messages = append(messages, quota.Name+" has scopes and is not evaluated")
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(quota.Status.Hard)) {
			for _, demand := range demands {
				capacity, counted := quotaCapacity(quota, name, demand.resources)
				if !counted || scoped && !slices.Contains(classes, demand.priorityClass) {
					continue
				}
				if least < 0 || capacity < least {
					least = capacity
				}
				hard, used := quota.Status.Hard[name], quota.Status.Used[name]
				messages = append(messages, fmt.Sprintf("%s: %s of %s %s used, capacity for %d more %s",
					quota.Name, used.String(), hard.String(), name, capacity, demand.name))
			}
		}
	}
	detail := strings.Join(messages, "; ")
	switch {
	case len(found.Items) == 0:
		return pass("the namespace has no ResourceQuota")
	case least == 0:
		return fail(detail, "raise the ResourceQuota, or use another namespace; a VM requires one Pod, and one more for each disk")
	case least > 0 && least < lowCapacity:
		return warn(detail, "raise the ResourceQuota before it is used up; a VM requires one Pod, and one more for each disk")
	}
	return pass(detail)
}

// priorityClassScope returns the PriorityClasses of the Pods that the quota counts, if these are its only scope. Otherwise it returns nil,
// and whether the quota has scopes.
func priorityClassScope(quota *corev1.ResourceQuota) (classes []string, scoped bool) {
	selector := quota.Spec.ScopeSelector
	if len(quota.Spec.Scopes) > 0 || selector == nil || len(selector.MatchExpressions) != 1 {
		return nil, len(quota.Spec.Scopes) > 0 || selector != nil
	}
	scope := selector.MatchExpressions[0]
	if scope.ScopeName != corev1.ResourceQuotaScopePriorityClass || scope.Operator != corev1.ScopeSelectorOpIn {
		return nil, true
	}
	return scope.Values, true
}

// quotaCapacity returns for how many more Pods with this usage the quota has capacity. counted is whether they use the quota's
// resource.
func quotaCapacity(quota *corev1.ResourceQuota, name corev1.ResourceName, usage corev1.ResourceList) (capacity int64, counted bool) {
	amount, counted := usage[name]
	if !counted || amount.IsZero() {
		return 0, false
	}
	remaining := quota.Status.Hard[name].DeepCopy()
	remaining.Sub(quota.Status.Used[name])
	return max(0, remaining.MilliValue()) / amount.MilliValue(), true
}

func inspectLimitRanges(ctx context.Context, s *clusterState) finding {
	found, err := s.client.LimitRanges().List(ctx, kube.Selection{})
	if err != nil {
		return errorFinding(err, checkPermissionsFile)
	}
	var conflicts, defaults []string
	helpers := s.config.Pods.HelperResources()
	for _, limitRange := range found.Items {
		for _, item := range limitRange.Spec.Limits {
			if item.Type != corev1.LimitTypeContainer && item.Type != corev1.LimitTypePod {
				continue
			}
			conflicts = append(conflicts, limitRangeConflicts(limitRange.Name, item, helpers)...)
			for _, name := range slices.Sorted(maps.Keys(item.Default)) {
				amount := item.Default[name]
				defaults = append(defaults, fmt.Sprintf("%s: VMs without %s in their cloud_properties get %s",
					limitRange.Name, name, amount.String()))
			}
		}
	}
	switch {
	case len(conflicts) > 0:
		return fail(strings.Join(conflicts, "; "), "change kubernetes.pods.helper_limits and kubernetes.pods.helper_requests, or the LimitRange")
	case len(defaults) > 0:
		return warn(strings.Join(defaults, "; "), "set cpu and memory in every VM type")
	case len(found.Items) == 0:
		return pass("the namespace has no LimitRange")
	}
	return pass("kubernetes.pods.helper_limits and kubernetes.pods.helper_requests are within the LimitRanges")
}

// limitRangeConflicts returns what the LimitRange rejects in the resources of helper Pods, as admission does
// (plugin/pkg/admission/limitranger of Kubernetes).
func limitRangeConflicts(name string, item corev1.LimitRangeItem, helpers corev1.ResourceRequirements) []string {
	var conflicts []string
	for _, resource := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
		request, requested := helpers.Requests[resource]
		limit, limited := helpers.Limits[resource]
		if least, ok := item.Min[resource]; ok && (requested || item.Type == corev1.LimitTypePod) && request.Cmp(least) < 0 {
			conflicts = append(conflicts, fmt.Sprintf("%s: the minimum %s of a %s is %s, but helper Pods request %s; set "+
				"kubernetes.pods.helper_requests.%s", name, resource, item.Type, least.String(), request.String(), resource))
		}
		if most, ok := item.Max[resource]; ok && limited && limit.Cmp(most) > 0 {
			conflicts = append(conflicts, fmt.Sprintf("%s: the maximum %s of a %s is %s, but kubernetes.pods.helper_limits has %s",
				name, resource, item.Type, most.String(), limit.String()))
		}
		ratio, ok := item.MaxLimitRequestRatio[resource]
		if ok && requested && limited && limit.AsApproximateFloat64() > ratio.AsApproximateFloat64()*request.AsApproximateFloat64() {
			conflicts = append(conflicts, fmt.Sprintf("%s: the limit of %s of a %s may be %s times the request, but helper Pods request %s with a "+
				"limit of %s; set kubernetes.pods.helper_requests.%s", name, resource, item.Type, ratio.String(), request.String(), limit.String(),
				resource))
		}
	}
	return conflicts
}

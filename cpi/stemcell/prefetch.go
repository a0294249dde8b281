package stemcell

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/extension"
	images "bosh-kubernetes-cpi/stemcell"
)

// ValidatePrefetch returns an error for the first option that Kubernetes would reject.
func ValidatePrefetch(options images.Prefetch) error {
	for _, key := range slices.Sorted(maps.Keys(options.NodeSelector)) {
		if err := call.CheckLabel("stemcell.prefetch.node_selector", key, options.NodeSelector[key]); err != nil {
			return err
		}
	}
	for i, toleration := range options.Tolerations {
		if err := validateToleration(i, toleration); err != nil {
			return err
		}
	}
	return nil
}

var (
	tolerationOperators = []string{"", string(corev1.TolerationOpEqual), string(corev1.TolerationOpExists)}
	taintEffects        = []string{"", string(corev1.TaintEffectNoSchedule), string(corev1.TaintEffectPreferNoSchedule),
		string(corev1.TaintEffectNoExecute)}
)

func validateToleration(i int, t images.Toleration) error {
	exists := t.Operator == string(corev1.TolerationOpExists)
	switch {
	case !slices.Contains(tolerationOperators, t.Operator):
		return fmt.Errorf("stemcell.prefetch.tolerations[%d].operator %q is not valid; use Equal or Exists", i, t.Operator)
	case !slices.Contains(taintEffects, t.Effect):
		return fmt.Errorf("stemcell.prefetch.tolerations[%d].effect %q is not valid; use NoSchedule, PreferNoSchedule or NoExecute", i, t.Effect)
	case t.Key == "" && !exists:
		return fmt.Errorf("stemcell.prefetch.tolerations[%d].key is missing; to tolerate every taint use operator Exists", i)
	case t.Key != "" && len(validation.IsQualifiedName(t.Key)) > 0:
		return fmt.Errorf("stemcell.prefetch.tolerations[%d].key %q is not a valid taint key", i, t.Key)
	case exists && t.Value != "":
		return fmt.Errorf("stemcell.prefetch.tolerations[%d].value and operator Exists are mutually exclusive; remove one", i)
	case len(validation.IsValidLabelValue(t.Value)) > 0:
		return fmt.Errorf("stemcell.prefetch.tolerations[%d].value %q is not a valid taint value", i, t.Value)
	case t.TolerationSeconds != nil && t.Effect != string(corev1.TaintEffectNoExecute):
		return fmt.Errorf("stemcell.prefetch.tolerations[%d].tolerationSeconds requires effect NoExecute", i)
	}
	return nil
}

// dryRunPrefetch fails if the cluster would reject the prefetch DaemonSet of a heavy stemcell, before its image is pushed.
func (s *Session) dryRunPrefetch() error {
	sample := s.Options.SampleCID()
	if !s.Options.Prefetch.Enabled || sample == "" {
		return nil
	}
	if err := s.Connect(); err != nil {
		return err
	}
	desired, err := s.buildPrefetchDaemonSet(sample)
	if err != nil {
		return err
	}
	_, err = s.DaemonSets().DryRunCreate(s.Ctx, desired)
	return prefetchError(err)
}

// ensurePrefetch creates the prefetch DaemonSet for the stemcell's image if stemcell.prefetch is enabled, and does not wait for its
// Pods. It keeps an existing DaemonSet, or recreates it if the settings changed.
func (s *Session) ensurePrefetch(cid string) error {
	if !s.Options.Prefetch.Enabled {
		return nil
	}
	if err := s.Connect(); err != nil {
		return err
	}
	desired, err := s.buildPrefetchDaemonSet(cid)
	if err != nil {
		return err
	}
	if err := EnsurePullSecret(s.Call, s.Options, manifest.PrefetchedImage(desired)); err != nil {
		return err
	}
	sets := s.DaemonSets()
	_, created, err := sets.Ensure(s.Ctx, desired, func(existing *extension.DaemonSet) (bool, error) {
		switch {
		case !manifest.BelongsTo(existing, s.Director):
			return false, call.CodeDaemonSetExists.Errorf("DaemonSet %s already exists and does not belong to this director; "+
				"delete it, and upload the stemcell again", existing.Name)
		case existing.DeletionTimestamp != nil:
			return false, nil
		case manifest.DigestOf(existing) == manifest.DigestOf(desired):
			return true, nil
		}
		return false, sets.Delete(s.Ctx, existing)
	})
	if err != nil {
		return prefetchError(err)
	}
	if created {
		s.Log.Info("created prefetch DaemonSet", "daemonset", desired.Name, "image", manifest.PrefetchedImage(desired))
	}
	return nil
}

// deletePrefetch deletes the stemcell's prefetch DaemonSet. If stemcell.prefetch is disabled, it sends no request: garbage collection
// deletes DaemonSets that were created before.
func (s *Session) deletePrefetch(cid string) error {
	if !s.Options.Prefetch.Enabled {
		return nil
	}
	if err := s.Connect(); err != nil {
		return err
	}
	sets := s.DaemonSets()
	existing, err := sets.Get(s.Ctx, manifest.PrefetchName(s.Director, images.Reference(cid)))
	switch {
	case errors.Is(err, kube.ErrNotFound), err == nil && !manifest.BelongsTo(existing, s.Director):
		return nil
	case err != nil:
		return prefetchError(err)
	}
	return prefetchError(sets.Delete(s.Ctx, existing))
}

// buildPrefetchDaemonSet returns the prefetch DaemonSet for the stemcell's image.
func (s *Session) buildPrefetchDaemonSet(cid string) (*extension.DaemonSet, error) {
	options := s.Options
	image, err := options.Image(cid)
	if err != nil {
		return nil, call.CodeInvalidConfig.Errorf("%w", err)
	}
	desired := manifest.Prefetch{
		Namespace: s.Namespace, Director: s.Director, Stemcell: cid, Reference: images.Reference(cid), Image: image,
		Architectures: images.Architectures(cid), NodeSelector: options.Prefetch.NodeSelector,
	}
	for _, toleration := range options.Prefetch.Tolerations {
		desired.Tolerations = append(desired.Tolerations, corev1.Toleration{
			Key: toleration.Key, Operator: corev1.TolerationOperator(toleration.Operator), Value: toleration.Value,
			Effect: corev1.TaintEffect(toleration.Effect), TolerationSeconds: toleration.TolerationSeconds,
		})
	}
	if desired.PullSecrets, err = PullSecrets(options, image); err != nil {
		return nil, err
	}
	pod := s.PodOptions.ApplyToHelperPod(desired.Pod())
	capLimits(manifest.OwnContainer(pod).Resources.Limits)
	return desired.DaemonSet(pod)
}

// capLimits lowers the limits of a helper Pod to the needs of a sleeping program: there is one Pod on each node, and a quota counts
// all of them.
func capLimits(limits corev1.ResourceList) {
	caps := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("32Mi")}
	for name, limitCap := range caps {
		if limit, limited := limits[name]; limited && limit.Cmp(limitCap) > 0 {
			limits[name] = limitCap
		}
	}
}

// prefetchError adds the remedy to a denied request: only prefetching needs permissions for DaemonSets.
func prefetchError(err error) error {
	if !errors.Is(err, kube.ErrDenied) {
		return err
	}
	return call.CodePrefetchDenied.Wrap(call.WithMessage(err, "cannot prefetch the stemcell's image: stemcell.prefetch requires the Role of "+
		"manifests/rbac-prefetch.yaml; apply it, or disable stemcell.prefetch, and retry"), false)
}

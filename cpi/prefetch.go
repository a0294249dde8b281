package cpi

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/extension"
	"bosh-kubernetes-cpi/kube/manifest"
	"bosh-kubernetes-cpi/stemcell"
)

// checkPrefetch names what Kubernetes would not take of the options.
func checkPrefetch(options stemcell.Prefetch) error {
	for _, key := range slices.Sorted(maps.Keys(options.NodeSelector)) {
		if err := call.CheckLabel("stemcell.prefetch.node_selector", key, options.NodeSelector[key]); err != nil {
			return err
		}
	}
	for i, each := range options.Tolerations {
		if err := checkToleration(i, each); err != nil {
			return err
		}
	}
	return nil
}

var (
	operators = []string{"", string(corev1.TolerationOpEqual), string(corev1.TolerationOpExists)}
	effects   = []string{"", string(corev1.TaintEffectNoSchedule), string(corev1.TaintEffectPreferNoSchedule),
		string(corev1.TaintEffectNoExecute)}
)

func checkToleration(i int, t stemcell.Toleration) error {
	exists := t.Operator == string(corev1.TolerationOpExists)
	switch {
	case !slices.Contains(operators, t.Operator):
		return fmt.Errorf("stemcell.prefetch.tolerations[%d].operator %q is none of Equal, Exists", i, t.Operator)
	case !slices.Contains(effects, t.Effect):
		return fmt.Errorf("stemcell.prefetch.tolerations[%d].effect %q is none of NoSchedule, PreferNoSchedule, NoExecute", i, t.Effect)
	case t.Key == "" && !exists:
		return fmt.Errorf("stemcell.prefetch.tolerations[%d].key is missing; for any taint give operator Exists instead", i)
	case t.Key != "" && len(validation.IsQualifiedName(t.Key)) > 0:
		return fmt.Errorf("stemcell.prefetch.tolerations[%d].key %q is not a taint's key", i, t.Key)
	case exists && t.Value != "":
		return fmt.Errorf("stemcell.prefetch.tolerations[%d].value is set, which operator Exists does not look at: leave one of them out", i)
	case len(validation.IsValidLabelValue(t.Value)) > 0:
		return fmt.Errorf("stemcell.prefetch.tolerations[%d].value %q is not a taint's value", i, t.Value)
	case t.TolerationSeconds != nil && t.Effect != string(corev1.TaintEffectNoExecute):
		return fmt.Errorf("stemcell.prefetch.tolerations[%d].tolerationSeconds is for effect NoExecute alone", i)
	}
	return nil
}

// admitPrefetch refuses a heavy stemcell before its image is pushed, where the cluster would refuse what makes nodes pull it.
func (s *session) admitPrefetch() error {
	sample := s.config.Stemcell.Sample()
	if !s.config.Stemcell.Prefetch.Enabled || sample == "" {
		return nil
	}
	sets, err := s.connectDaemonSets()
	if err != nil {
		return err
	}
	wanted, err := s.prefetching(sample)
	if err != nil {
		return err
	}
	_, err = sets.Try(s.Ctx, wanted)
	return prefetchError(err)
}

// prefetch has nodes pull the stemcell's image, where the configuration wants it, and does not wait for them. What is there
// already for this image stays as it is, or is made anew where the settings have changed.
func (s *session) prefetch(cid string) error {
	if !s.config.Stemcell.Prefetch.Enabled {
		return nil
	}
	sets, err := s.connectDaemonSets()
	if err != nil {
		return err
	}
	wanted, err := s.prefetching(cid)
	if err != nil {
		return err
	}
	if err := s.machines().BringPullSecret(manifest.PrefetchedImage(wanted)); err != nil {
		return err
	}
	_, made, err := sets.Bring(s.Ctx, wanted, func(left *extension.DaemonSet) (bool, error) {
		switch {
		case !manifest.Belongs(left, s.Director):
			return false, call.CloudError.Errorf("there is a DaemonSet %s already that is not this director's: "+
				"delete it, and upload the stemcell again", left.Name)
		case left.DeletionTimestamp != nil:
			return false, nil
		case left.Annotations[manifest.AnnotationDigest] == wanted.Annotations[manifest.AnnotationDigest]:
			return true, nil
		}
		return false, sets.Delete(s.Ctx, left)
	})
	if err != nil {
		return prefetchError(err)
	}
	if made {
		s.Log.Info("nodes pull the stemcell's image in the background", "daemonset", wanted.Name)
	}
	return nil
}

// endPrefetch has nodes keep the stemcell's image no longer. Without the setting it asks for nothing: what an earlier one has
// left is a left-over.
func (s *session) endPrefetch(cid string) error {
	if !s.config.Stemcell.Prefetch.Enabled {
		return nil
	}
	sets, err := s.connectDaemonSets()
	if err != nil {
		return err
	}
	left, err := sets.Get(s.Ctx, manifest.PrefetchName(s.Director, stemcell.Reference(cid)))
	switch {
	case errors.Is(err, kube.ErrNotFound):
		return nil
	case err != nil:
		return prefetchError(err)
	case !manifest.Belongs(left, s.Director):
		return nil
	}
	return prefetchError(sets.Delete(s.Ctx, left))
}

// connectDaemonSets is connect, for these.
func (s *session) connectDaemonSets() (*kube.Resource[*extension.DaemonSet, *extension.List[extension.DaemonSet]], error) {
	if err := s.connect(); err != nil {
		return nil, err
	}
	return s.DaemonSets()
}

// prefetching is what has nodes pull the stemcell's image.
func (s *session) prefetching(cid string) (*extension.DaemonSet, error) {
	options := s.config.Stemcell
	image, err := options.Image(cid)
	if err != nil {
		return nil, call.Invalid("%w", err)
	}
	wanted := manifest.Prefetch{
		Namespace: s.Namespace, Director: s.Director, Stemcell: cid, Reference: stemcell.Reference(cid), Image: image,
		Architectures: stemcell.Architectures(cid), NodeSelector: options.Prefetch.NodeSelector,
	}
	for _, each := range options.Prefetch.Tolerations {
		wanted.Tolerations = append(wanted.Tolerations, corev1.Toleration{
			Key: each.Key, Operator: corev1.TolerationOperator(each.Operator), Value: each.Value,
			Effect: corev1.TaintEffect(each.Effect), TolerationSeconds: each.TolerationSeconds,
		})
	}
	name, _, err := options.PullSecret(image)
	if err != nil {
		return nil, err
	}
	if name != "" {
		wanted.PullSecrets = []corev1.LocalObjectReference{{Name: name}}
	}
	return wanted.DaemonSet(frugal(s.PodOptions.Equip(wanted.Pod())))
}

// frugal lowers the limits that the Pod has as every helper to what a program that sleeps, and its start, need at most: there is
// one on each node, and a quota counts them all.
func frugal(pod *corev1.Pod) *corev1.Pod {
	limits := manifest.Own(pod).Resources.Limits
	enough := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("32Mi")}
	for name, most := range enough {
		if limit, bounded := limits[name]; bounded && limit.Cmp(most) > 0 {
			limits[name] = most
		}
	}
	return pod
}

// prefetchError says of a refusal what it is about: no other call needs the right.
func prefetchError(err error) error {
	if !errors.Is(err, kube.ErrRefused) {
		return err
	}
	return call.Explained(err, "stemcell.prefetch is enabled, for which the CPI needs docs/rbac-prefetch.yaml: apply it, or disable that, "+
		"and repeat the call")
}

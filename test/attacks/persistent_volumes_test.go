package attacks

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// pvcAttempts are attempts to bind a PVC to an administrator's PersistentVolume, keyed by description. Unlike other attacks, they create
// real objects.
var pvcAttempts = map[string]struct {
	size, class string // of the volume; unless class is empty, the volume gets a unique class
	try         func(ctx context.Context, a *Attacker, volume, class string) error
}{
	"a PVC that names it": {"1Gi", "static", func(ctx context.Context, a *Attacker, volume, class string) error {
		return a.createRealPVC(ctx, func(c *corev1.PersistentVolumeClaim) {
			c.Spec.VolumeName, c.Spec.StorageClassName = volume, &class
		})
	}},
	"a PVC that selects it by label": {"1Gi", "static", func(ctx context.Context, a *Attacker, _, class string) error {
		return a.createRealPVC(ctx, func(c *corev1.PersistentVolumeClaim) {
			c.Spec.StorageClassName, c.Spec.Selector = &class, &metav1.LabelSelector{MatchLabels: map[string]string{"app": othersName}}
		})
	}},
	"a PVC with the same StorageClass": {"1Gi", "static", func(ctx context.Context, a *Attacker, _, class string) error {
		return a.createRealPVC(ctx, func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = &class })
	}},
	"a PVC with an empty StorageClass name, for a volume without a StorageClass": {"1Gi", "", func(ctx context.Context, a *Attacker, _, _ string) error {
		return a.createRealPVC(ctx, func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = new("") })
	}},
	"a PVC with the same StorageClass in an annotation": {"1Gi", "static", func(ctx context.Context, a *Attacker, _, class string) error {
		return a.createRealPVC(ctx, func(c *corev1.PersistentVolumeClaim) { c.Annotations[corev1.BetaStorageClassAnnotation] = class })
	}},
	"a PVC that gets the same StorageClass later": {"4Gi", "static", func(ctx context.Context, a *Attacker, _, class string) error {
		patch := []byte(`{"spec": {"storageClassName": "` + class + `"}}`)
		pvcs := a.Client.CoreV1().PersistentVolumeClaims(a.Namespace)
		_, err := pvcs.Patch(ctx, classlessDisk, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	}},
	"an ephemeral volume with the same StorageClass": {"1Gi", "static", func(ctx context.Context, a *Attacker, _, class string) error {
		pod := a.newVMPod()
		addEphemeralVolume(func(c *corev1.PersistentVolumeClaimTemplate) { c.Spec.StorageClassName = &class })(pod)
		pod.Spec.NodeSelector = unschedulable
		_, err := a.Client.CoreV1().Pods(a.Namespace).Create(ctx, pod, metav1.CreateOptions{})
		return err
	}},
}

// createRealPVC creates a modified PVC. Unlike createPVC, it is not a dry run.
func (a *Attacker) createRealPVC(ctx context.Context, change func(*corev1.PersistentVolumeClaim)) error {
	pvc := newPVC(a.Namespace, "disk-taken")
	change(pvc.PVC)
	_, err := a.Client.CoreV1().PersistentVolumeClaims(a.Namespace).Create(ctx, pvc.PVC, metav1.CreateOptions{})
	return err
}

var _ = Describe("The admission policy blocks access to an administrator's PersistentVolume through", func() {
	for description, attempt := range pvcAttempts {
		It(description, func(ctx context.Context) {
			unconfined, confined := protected.newAttacker(ctx, nil), protected.confinedAttacker(ctx)
			class := attempt.class
			if class != "" {
				class = "class-" + unconfined.Namespace
			}
			volume := StaticVolume("volume-"+unconfined.Namespace, class, attempt.size)
			volumes := protected.cluster.CoreV1().PersistentVolumes()
			_, err := volumes.Create(ctx, volume, metav1.CreateOptions{})
			Expect(err).NotTo(HaveOccurred())
			Expect(attempt.try(ctx, confined, volume.Name, class)).To(MatchError(ContainSubstring(denialPrefix)))

			Expect(attempt.try(ctx, unconfined, volume.Name, class)).To(Succeed(), "without the policy")
			Eventually(func(g Gomega) {
				bound, err := volumes.Get(ctx, volume.Name, metav1.GetOptions{})
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(bound.Spec.ClaimRef).To(HaveField("Namespace", unconfined.Namespace))
			}).WithContext(ctx).Should(Succeed(), "without the policy")
		})
	}
})

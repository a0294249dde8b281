package attacks

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// pvcAttempts are those to an administrator's PersistentVolume of this class. None is a dry run.
var pvcAttempts = map[string]struct {
	size, class string // of the volume; no class, or one of its own
	try         func(ctx context.Context, a *Attacker, volume, class string) error
}{
	"that names it": {"1Gi", "static", func(ctx context.Context, a *Attacker, volume, class string) error {
		return a.createRealPVC(ctx, func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName, c.Spec.StorageClassName = volume, &class })
	}},
	"that selects it by its label": {"1Gi", "static", func(ctx context.Context, a *Attacker, _, class string) error {
		return a.createRealPVC(ctx, func(c *corev1.PersistentVolumeClaim) {
			c.Spec.StorageClassName, c.Spec.Selector = &class, &metav1.LabelSelector{MatchLabels: map[string]string{"app": foreignName}}
		})
	}},
	"of its class": {"1Gi", "static", func(ctx context.Context, a *Attacker, _, class string) error {
		return a.createRealPVC(ctx, func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = &class })
	}},
	"of no class, as the volume is": {"1Gi", "", func(ctx context.Context, a *Attacker, _, _ string) error {
		return a.createRealPVC(ctx, func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = new("") })
	}},
	"with its class in an annotation": {"1Gi", "static", func(ctx context.Context, a *Attacker, _, class string) error {
		return a.createRealPVC(ctx, func(c *corev1.PersistentVolumeClaim) { c.Annotations[corev1.BetaStorageClassAnnotation] = class })
	}},
	"without a class that gets its class later": {"4Gi", "static", func(ctx context.Context, a *Attacker, _, class string) error {
		patch := []byte(`{"spec": {"storageClassName": "` + class + `"}}`)
		_, err := a.Client.CoreV1().PersistentVolumeClaims(a.Namespace).Patch(ctx, classlessDisk, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	}},
	"of an ephemeral volume of a VM Pod, of its class": {"1Gi", "static", func(ctx context.Context, a *Attacker, _, class string) error {
		pod := a.newVMPod()
		addEphemeralVolume(func(c *corev1.PersistentVolumeClaimTemplate) { c.Spec.StorageClassName = &class })(pod)
		pod.Spec.NodeSelector = unschedulable
		_, err := a.Client.CoreV1().Pods(a.Namespace).Create(ctx, pod, metav1.CreateOptions{})
		return err
	}},
}

func (a *Attacker) createRealPVC(ctx context.Context, change func(*corev1.PersistentVolumeClaim)) error {
	pvc := newPVC(a.Namespace, "disk-taken")
	change(pvc)
	_, err := a.Client.CoreV1().PersistentVolumeClaims(a.Namespace).Create(ctx, pvc, metav1.CreateOptions{})
	return err
}

var _ = Describe("With the token, an administrator's PersistentVolume is reached by no claim", Ordered, ContinueOnFailure, func() {
	var env *attackEnv
	BeforeAll(func(ctx context.Context) { env = newAttackEnvWithPolicy(ctx) }, NodeTimeout(startTimeout))

	for description, attempt := range pvcAttempts {
		It(description, func(ctx context.Context) {
			unconfined, confined := env.newAttacker(ctx, nil), env.confinedAttacker(ctx)
			class := attempt.class
			if class != "" {
				class = "of-" + unconfined.Namespace
			}
			volume := StaticVolume("volume-"+unconfined.Namespace, class, attempt.size)
			volumes := env.cluster.CoreV1().PersistentVolumes()
			_, err := volumes.Create(ctx, volume, metav1.CreateOptions{})
			Expect(err).NotTo(HaveOccurred())
			Expect(attempt.try(ctx, confined, volume.Name, class)).To(MatchError(ContainSubstring(denialPrefix)))

			Expect(attempt.try(ctx, unconfined, volume.Name, class)).To(Succeed(), "without the policy")
			Eventually(func(g Gomega) {
				found, err := volumes.Get(ctx, volume.Name, metav1.GetOptions{})
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(found.Spec.ClaimRef).To(HaveField("Namespace", unconfined.Namespace))
			}).WithContext(ctx).Should(Succeed(), "without the policy")
		})
	}
})

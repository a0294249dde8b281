package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	admission "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"bosh-kubernetes-cpi/cpi/manifest"
)

// PodFaults injects faults that occur in any cluster into the Pods of a namespace.
type PodFaults struct {
	Cluster   kubernetes.Interface
	Namespace string
	// BeforeKill is called before an attachment Pod is deleted with a grace period that is too short for it to exit. It may be nil.
	BeforeKill func(ctx context.Context, attachment *corev1.Pod) error
}

// SetUp creates the cluster-scoped objects that the faults require, and returns a function that deletes them.
func (p PodFaults) SetUp(ctx context.Context) (tearDown func(context.Context) error, err error) {
	classes := p.Cluster.SchedulingV1().PriorityClasses()
	_, err = classes.Create(ctx, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: p.Namespace}, Value: 1000}, metav1.CreateOptions{})
	return func(ctx context.Context) error { return classes.Delete(ctx, p.Namespace, metav1.DeleteOptions{}) }, err
}

// Faults returns the faults.
func (p PodFaults) Faults() []Weighted[Fault] {
	onPod := func(weight int, name, role string, do func(context.Context, *corev1.Pod) error) Weighted[Fault] {
		return Weigh(weight, Fault{name, func(ctx context.Context, random *rand.Rand) error { return p.withRandomPod(ctx, random, role, do) }})
	}
	deletePod := func(gracePeriod *int64) func(context.Context, *corev1.Pod) error {
		return func(ctx context.Context, pod *corev1.Pod) error { return p.deletePod(ctx, pod, gracePeriod) }
	}
	return []Weighted[Fault]{
		onPod(4, "an attachment Pod is deleted", manifest.RoleAttachment, deletePod(nil)),
		onPod(2, "an attachment Pod is deleted by force", manifest.RoleAttachment, deletePod(new(int64(0)))),
		onPod(2, "an attachment Pod is killed", manifest.RoleAttachment, p.killPod),
		onPod(4, "an attachment Pod is evicted", manifest.RoleAttachment, p.evictPod),
		onPod(2, "a VM is evicted", manifest.RoleVM, p.evictPod),
		onPod(2, "a VM is preempted", manifest.RoleVM, p.preemptPod),
		Weigh(2, Fault{"a webhook denies all Pods for some seconds", p.denyPods}),
	}
}

// withRandomPod calls do with a random Pod of this role, if there is one.
func (p PodFaults) withRandomPod(ctx context.Context, random *rand.Rand, role string, do func(context.Context, *corev1.Pod) error) error {
	pods, err := p.Cluster.CoreV1().Pods(p.Namespace).List(ctx, metav1.ListOptions{LabelSelector: manifest.LabelRole + "=" + role})
	if err != nil || len(pods.Items) == 0 {
		return err
	}
	err = do(ctx, &pods.Items[random.IntN(len(pods.Items))])
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func (p PodFaults) deletePod(ctx context.Context, pod *corev1.Pod, gracePeriod *int64) error {
	return p.Cluster.CoreV1().Pods(p.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: gracePeriod})
}

// killPod deletes the Pod with a grace period that is too short for it to exit.
func (p PodFaults) killPod(ctx context.Context, pod *corev1.Pod) error {
	if p.BeforeKill != nil {
		if err := p.BeforeKill(ctx, pod); err != nil {
			return err
		}
	}
	return p.deletePod(ctx, pod, new(int64(1)))
}

func (p PodFaults) evictPod(ctx context.Context, pod *corev1.Pod) error {
	return p.Cluster.PolicyV1().Evictions(p.Namespace).Evict(ctx, &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: p.Namespace},
	})
}

// preemptPod makes the scheduler preempt the Pod in favor of a Pod with a higher priority that cannot run on the same node.
func (p PodFaults) preemptPod(ctx context.Context, victim *corev1.Pod) error {
	if victim.Spec.NodeName == "" {
		return nil
	}
	pods := p.Cluster.CoreV1().Pods(p.Namespace)
	preemptor := p.newPreemptor(victim)
	if _, err := pods.Create(ctx, preemptor, metav1.CreateOptions{}); err != nil {
		return err
	}
	preempted := false
	for range 50 {
		current, err := pods.Get(ctx, victim.Name, metav1.GetOptions{})
		preempted = apierrors.IsNotFound(err) || err == nil && (current.UID != victim.UID || current.DeletionTimestamp != nil)
		if preempted || !sleep(ctx, 200*time.Millisecond) {
			break
		}
	}
	err := deleteWithRetry(ctx, func(ctx context.Context) error {
		return pods.Delete(ctx, preemptor.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
	})
	if err == nil && !preempted && ctx.Err() == nil {
		return fmt.Errorf("%s was not preempted", victim.Name)
	}
	return err
}

// newPreemptor returns a Pod that requires the victim's node without the victim.
func (p PodFaults) newPreemptor(victim *corev1.Pod) *corev1.Pod {
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{
		manifest.LabelRole: victim.Labels[manifest.LabelRole], manifest.LabelVM: victim.Labels[manifest.LabelVM],
	}}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "preemptor-" + strconv.FormatInt(time.Now().UnixNano(), 36), Namespace: p.Namespace},
		Spec: corev1.PodSpec{
			PriorityClassName: p.Namespace,
			NodeSelector:      map[string]string{corev1.LabelHostname: victim.Spec.NodeName},
			Containers:        []corev1.Container{{Name: "c", Image: "registry.invalid/none", ImagePullPolicy: corev1.PullNever}},
			Affinity: &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{LabelSelector: selector, TopologyKey: corev1.LabelHostname}},
			}},
		},
	}
}

// denyPods denies all Pods of the namespace for some seconds, with an unreachable webhook.
func (p PodFaults) denyPods(ctx context.Context, random *rand.Rand) error {
	hooks := p.Cluster.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	_, err := hooks.Create(ctx, &admission.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: p.Namespace},
		Webhooks: []admission.ValidatingWebhook{{
			Name: "none.chaos.test", AdmissionReviewVersions: []string{"v1"}, SideEffects: new(admission.SideEffectClassNone),
			ClientConfig:      admission.WebhookClientConfig{URL: new("https://127.0.0.1:1/none")},
			FailurePolicy:     new(admission.Fail),
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: p.Namespace}},
			Rules: []admission.RuleWithOperations{{
				Operations: []admission.OperationType{admission.Create, admission.Update},
				Rule:       admission.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods", "pods/ephemeralcontainers"}},
			}},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	sleep(ctx, time.Duration(2+random.IntN(6))*time.Second)
	return deleteWithRetry(ctx, func(ctx context.Context) error { return hooks.Delete(ctx, p.Namespace, metav1.DeleteOptions{}) })
}

// deleteWithRetry deletes an object of a fault. It retries, because the API server can be restarting, and an orphaned object would make
// the fault permanent.
func deleteWithRetry(ctx context.Context, deleteObject func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	for {
		err := deleteObject(ctx)
		if err == nil || apierrors.IsNotFound(err) {
			return nil
		}
		if !sleep(ctx, 200*time.Millisecond) {
			return err
		}
	}
}

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admission "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/test/director"
	"bosh-kubernetes-cpi/test/storm"
)

// How the storm is, unless the environment says otherwise.
const (
	stormMachines = 20
	stormMinutes  = 15
)

var _ = Describe("A storm", Label("storm", "extended"), func() {
	It("takes no disk's content, and no two machines write to one", func(ctx context.Context) {
		site := newStormSite(ctx)
		rages := storm.Storm{
			Site: site, Weather: site.weather(), Pause: 3 * time.Second, Disks: site.disks(ctx, number("STORM_MACHINES", stormMachines)),
			Seed:     uint64(number("STORM_SEED", int(time.Now().Unix()))),
			Duration: time.Duration(number("STORM_MINUTES", stormMinutes)) * time.Minute,
			Log: func(format string, arguments ...any) {
				fmt.Fprintf(GinkgoWriter, time.Now().Format(time.TimeOnly)+" "+format+"\n", arguments...)
			},
		}
		AddReportEntry("seed", rages.Seed)
		GinkgoWriter.Println("STORM_SEED", rages.Seed)
		violations := rages.Run(ctx)
		AddReportEntry("calls and events", rages.Counts())
		Expect(violations).To(BeEmpty())
	}, NodeTimeout(90*time.Minute))
})

// number is an environment variable's, or this one.
func number(variable string, otherwise int) int {
	GinkgoHelper()
	value, given := os.LookupEnv(variable)
	if !given {
		return otherwise
	}
	parsed, err := strconv.Atoi(value)
	Expect(err).NotTo(HaveOccurred(), variable)
	return parsed
}

// stormSite is a world for a storm.
type stormSite struct {
	*world
	stemcellCID string
	env         map[string]any

	mutex      sync.Mutex
	made       int
	violations []string
}

func newStormSite(ctx context.Context) *stormSite {
	GinkgoHelper()
	w := newWorld(ctx)
	env, err := director.AgentEnv()
	Expect(err).NotTo(HaveOccurred())
	_, err = w.cluster.SchedulingV1().PriorityClasses().Create(ctx, &schedulingv1.PriorityClass{
		ObjectMeta: metav1.ObjectMeta{Name: w.namespace}, Value: 1000,
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx context.Context) {
		Expect(w.cluster.SchedulingV1().PriorityClasses().Delete(ctx, w.namespace, metav1.DeleteOptions{})).To(Succeed())
	})
	return &stormSite{world: w, stemcellCID: w.stemcell(ctx, os.Getenv("E2E_STEMCELL")), env: env}
}

// disks are of both kinds of claims.
func (s *stormSite) disks(ctx context.Context, count int) (disks []string) {
	GinkgoHelper()
	for i := range count {
		properties := map[string]any{}
		if i%4 == 3 {
			properties = movable["Block"]
		}
		disks = append(disks, s.createDisk(ctx, 64, properties))
	}
	return disks
}

func (s *stormSite) NewVM(disk string) (cid string, arguments []any) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.made++
	agent := fmt.Sprintf("%s-%d", s.namespace, s.made)
	small := map[string]any{"resources": map[string]any{"requests": map[string]any{"cpu": "20m"}}}
	return "agent-" + agent, []any{agent, s.stemcellCID, small, manual(newAddress()), []string{disk}, s.env}
}

// counting is the program that counts: $0 is its name, $1 the folder, $2 what tells it from others.
const counting = `
cd "$1" || exit
had=$(cat counter 2>/dev/null || echo 0)
while mountpoint -q "$1"; do
  if [[ $(cat writer) != "$2" || $(cat counter 2>/dev/null || echo 0) != "$had" ]]; then
    echo "$2 had $had, and found $(cat counter) of $(cat writer)" >>violations
    exit
  fi
  echo $((had + 1)) >counter.new && sync counter.new && mv counter.new counter && sync . || exit
  had=$((had + 1))
  sleep 0.1
done`

func (s *stormSite) in(ctx context.Context, vm, script string, arguments ...string) (string, error) {
	limited, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	command := append([]string{"exec", "-n", s.namespace, vm, "-c", "machine", "--", "bash", "-c", script, "storm"}, arguments...)
	out, err := s.embedded.ControlPlane.Kubectl(limited, command...)
	return strings.TrimSpace(out), err
}

func (s *stormSite) Count(ctx context.Context, vm, disk string) error {
	s.mutex.Lock()
	s.made++
	session := fmt.Sprintf("%s-%d", vm, s.made)
	s.mutex.Unlock()
	_, err := s.in(ctx, vm, `set -e
		at=/mnt/$1
		[[ -b /dev/bosh/$1 ]]
		mkdir -p "$at"
		mountpoint -q "$at" || mount "/dev/bosh/$1" "$at"
		echo "$2" >"$at/probe" && sync "$at/probe"
		if pgrep -f "^counting-$1" >/dev/null; then exit 0; fi
		echo "$2" >"$at/writer" && sync "$at/writer"
		(exec -a "counting-$1" setsid bash -c "$3" "counting-$1" "$at" "$2") </dev/null >/dev/null 2>&1 &`,
		disk, session, `exec -a "$0" bash -c '`+strings.ReplaceAll(counting, "'", `'\''`)+`' "$0" "$@"`)
	return err
}

func (s *stormSite) Read(ctx context.Context, vm, disk string) (int, error) {
	out, err := s.in(ctx, vm, `set -e; mountpoint -q "/mnt/$1"; cd "/mnt/$1"; cat counter 2>/dev/null || echo 0; cat violations 2>/dev/null || true`, disk)
	if err != nil {
		return 0, err
	}
	counter, violations, _ := strings.Cut(out, "\n")
	if violations != "" {
		s.mutex.Lock()
		s.violations = append(s.violations, "disk "+disk+": "+violations)
		s.mutex.Unlock()
	}
	return strconv.Atoi(counter)
}

func (s *stormSite) Stop(ctx context.Context, vm, disk string) error {
	_, err := s.in(ctx, vm, `
		while pkill -f "^counting-$1"; do sleep 0.1; done
		! mountpoint -q "/mnt/$1" || umount "/mnt/$1"`, disk)
	return err
}

func (s *stormSite) Violations() []string {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.violations
}

// weather is all that happens to the site.
func (s *stormSite) weather() []storm.Weather {
	return []storm.Weather{
		{Name: "an attachment is deleted", Weight: 8, Happens: func(ctx context.Context, chance *rand.Rand) error {
			grace := []*int64{nil, new(int64(0)), new(int64(1)), new(int64(30))}[chance.IntN(4)]
			return s.each(ctx, chance, "attachment", func(pod *corev1.Pod) error {
				return s.cluster.CoreV1().Pods(s.namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: grace})
			})
		}},
		{Name: "an attachment is evicted", Weight: 4, Happens: func(ctx context.Context, chance *rand.Rand) error {
			return s.each(ctx, chance, "attachment", func(pod *corev1.Pod) error { return s.evict(ctx, pod) })
		}},
		{Name: "a machine is evicted", Weight: 2, Happens: func(ctx context.Context, chance *rand.Rand) error {
			return s.each(ctx, chance, "vm", func(pod *corev1.Pod) error { return s.evict(ctx, pod) })
		}},
		{Name: "an attachment is preempted", Weight: 3, Happens: func(ctx context.Context, chance *rand.Rand) error {
			return s.each(ctx, chance, "attachment", func(pod *corev1.Pod) error { return s.preempt(ctx, pod) })
		}},
		{Name: "a machine is preempted", Weight: 2, Happens: func(ctx context.Context, chance *rand.Rand) error {
			return s.each(ctx, chance, "vm", func(pod *corev1.Pod) error { return s.preempt(ctx, pod) })
		}},
		{Name: "a webhook denies all Pods for some seconds", Weight: 2, Happens: s.deny},
		{Name: "the kubelet restarts", Weight: 1, Happens: func(ctx context.Context, _ *rand.Rand) error {
			return errors.Join(s.node().Kubelet().Stop(), s.node().StartKubelet(context.WithoutCancel(ctx)))
		}},
		{Name: "the API server restarts", Weight: 1, Happens: func(ctx context.Context, _ *rand.Rand) error {
			plane := s.embedded.ControlPlane
			return errors.Join(plane.Process("kube-apiserver").Stop(), plane.Start(context.WithoutCancel(ctx)))
		}},
	}
}

// each does something to one of the Pods with this role, if there is one.
func (s *stormSite) each(ctx context.Context, chance *rand.Rand, role string, do func(*corev1.Pod) error) error {
	pods, err := s.cluster.CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{LabelSelector: "bosh.cloudfoundry.org/role=" + role})
	if err != nil || len(pods.Items) == 0 {
		return err
	}
	err = do(&pods.Items[chance.IntN(len(pods.Items))])
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func (s *stormSite) evict(ctx context.Context, pod *corev1.Pod) error {
	return s.cluster.PolicyV1().Evictions(s.namespace).Evict(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: s.namespace}})
}

// preempt has the scheduler push the Pod off its node, by one that is more important and does not run beside it.
func (s *stormSite) preempt(ctx context.Context, victim *corev1.Pod) error {
	pods := s.cluster.CoreV1().Pods(s.namespace)
	name := "important-" + strconv.FormatInt(time.Now().UnixNano(), 36)
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{
		"bosh.cloudfoundry.org/role": victim.Labels["bosh.cloudfoundry.org/role"], "bosh.cloudfoundry.org/vm": victim.Labels["bosh.cloudfoundry.org/vm"],
	}}
	_, err := pods.Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.namespace},
		Spec: corev1.PodSpec{
			PriorityClassName: s.namespace,
			Containers:        []corev1.Container{{Name: "c", Image: "registry.invalid/none", ImagePullPolicy: corev1.PullNever}},
			Affinity: &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{LabelSelector: selector, TopologyKey: corev1.LabelHostname}},
			}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	var told bool
	for range 50 {
		now, err := pods.Get(ctx, victim.Name, metav1.GetOptions{})
		if told = apierrors.IsNotFound(err) || err == nil && (now.UID != victim.UID || now.DeletionTimestamp != nil); told || !pause(ctx, 200*time.Millisecond) {
			break
		}
	}
	err = pods.Delete(context.WithoutCancel(ctx), name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
	if err == nil && !told && ctx.Err() == nil {
		return fmt.Errorf("%s was not preempted", victim.Name)
	}
	return err
}

// pause reports whether there is time left after this much of it.
func pause(ctx context.Context, length time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(length):
		return true
	}
}

// deny has all Pods of the namespace denied for a while, by a webhook that is not there.
func (s *stormSite) deny(ctx context.Context, chance *rand.Rand) error {
	hooks := s.cluster.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	_, err := hooks.Create(ctx, &admission.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: s.namespace},
		Webhooks: []admission.ValidatingWebhook{{
			Name: "none.storm.test", AdmissionReviewVersions: []string{"v1"}, SideEffects: new(admission.SideEffectClassNone),
			ClientConfig:      admission.WebhookClientConfig{URL: new("https://127.0.0.1:1/none")},
			FailurePolicy:     new(admission.Fail),
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": s.namespace}},
			Rules: []admission.RuleWithOperations{{
				Operations: []admission.OperationType{admission.Create, admission.Update},
				Rule:       admission.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods", "pods/ephemeralcontainers"}},
			}},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	pause(ctx, time.Duration(2+chance.IntN(6))*time.Second)
	return hooks.Delete(context.WithoutCancel(ctx), s.namespace, metav1.DeleteOptions{})
}

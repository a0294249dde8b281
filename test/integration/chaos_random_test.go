package integration

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"

	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/test/chaos"
	"bosh-kubernetes-cpi/test/harness/apiproxy"
)

// Size of the chaos test on simulated nodes.
const (
	chaosVMs     = 20
	chaosSeconds = 45
)

var _ = Describe("A chaos test on simulated nodes", long, func() {
	It("never lets two VMs use a disk at the same time, and all calls succeed after the faults stop", func(ctx context.Context) {
		env := newChaosEnv(ctx)
		chaosTest := chaos.Scenario{
			Environment: env, MeanPause: 400 * time.Millisecond, Seed: chaos.Seed(), Duration: chaosSeconds * time.Second,
			Faults: append(env.podFaults().Faults(), chaos.Weigh(3, chaos.Fault{Name: "requests fail for a few seconds", Inject: failRequests})),
			Log: func(format string, arguments ...any) {
				fmt.Fprintf(GinkgoWriter, time.Now().Format(time.TimeOnly)+" "+format+"\n", arguments...)
			},
		}
		for range chaosVMs {
			chaosTest.Disks = append(chaosTest.Disks, env.createDisk(ctx))
		}
		violations := chaosTest.Run(ctx)
		GinkgoWriter.Println(chaosTest.Counts())
		Expect(violations).To(BeEmpty())
	})
})

// failRequests makes one in ten requests of the CPI fail for three seconds: the connection breaks, or the response is a 503.
func failRequests(ctx context.Context, random *rand.Rand) error {
	proxy.Reset(chaos.RandomFaults(random, []chaos.Weighted[func(int) apiproxy.Fault]{
		chaos.Weigh(18, apiproxy.Forward), chaos.Weigh(1, apiproxy.ResetBefore), chaos.Weigh(1, apiproxy.Unavailable),
	}))
	defer proxy.Reset(nil)
	select {
	case <-ctx.Done():
	case <-time.After(3 * time.Second):
	}
	return nil
}

// chaosEnv simulates the programs that use disks on real nodes. A VM keeps a disk mounted while it increments the disk's counter. A
// deleted attachment Pod keeps running until its disk is unmounted. A killed one exits at once.
type chaosEnv struct {
	testEnv

	mutex      sync.Mutex
	agentCount int
	mounted    map[string]diskMount // by disk
	counters   map[string]int
	violations []string
}

// diskMount identifies the VM Pod that has a disk mounted.
type diskMount struct {
	vm  string
	uid types.UID
}

func newChaosEnv(ctx context.Context) *chaosEnv {
	GinkgoHelper()
	env := &chaosEnv{testEnv: newTestEnv(ctx), mounted: map[string]diskMount{}, counters: map[string]int{}}
	tearDown, err := env.podFaults().SetUp(ctx)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx context.Context) { Expect(tearDown(ctx)).To(Succeed()) })
	watchCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	DeferCleanup(stop)
	go env.recheckAfterVMDeletion(watchCtx)
	return env
}

// podFaults returns the faults that delete Pods. A killed Pod does not wait until its disk is unmounted.
func (env *chaosEnv) podFaults() chaos.PodFaults {
	return chaos.PodFaults{Cluster: cluster, Namespace: env.namespace, BeforeKill: func(ctx context.Context, attachment *corev1.Pod) error {
		return env.annotatePod(ctx, attachment.Name, "test/killed", new("yes"))
	}}
}

// recheckAfterVMDeletion rechecks the attachment of a disk when the VM that had the disk mounted is deleted.
func (env *chaosEnv) recheckAfterVMDeletion(ctx context.Context) {
	defer GinkgoRecover()
	pods, err := cluster.CoreV1().Pods(env.namespace).Watch(ctx, metav1.ListOptions{LabelSelector: manifest.LabelRole + "=" + manifest.RoleVM})
	Expect(err).NotTo(HaveOccurred())
	defer pods.Stop()
	for event := range pods.ResultChan() {
		if pod, isPod := event.Object.(*corev1.Pod); isPod && event.Type == watch.Deleted {
			_ = env.recheckAttachment(ctx, pod.Annotations["test/mounted"])
		}
	}
}

// recheckAttachment annotates the disk's attachment Pod, if it exists, to make the simulated kubelet recheck whether the Pod can exit.
func (env *chaosEnv) recheckAttachment(ctx context.Context, disk string) error {
	return env.annotateWithRetry(ctx, disk+"-attachment", "test/rechecked", new(strconv.FormatInt(time.Now().UnixNano(), 36)))
}

// annotateWithRetry annotates a Pod if it exists. It retries while a webhook denies the change.
func (env *chaosEnv) annotateWithRetry(ctx context.Context, pod, key string, value *string) error {
	return wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		err := env.annotatePod(ctx, pod, key, value)
		return err == nil || apierrors.IsNotFound(err), nil
	})
}

// NewVM implements chaos.Environment.
func (env *chaosEnv) NewVM(disk string) (cid string, arguments []any) {
	env.mutex.Lock()
	defer env.mutex.Unlock()
	env.agentCount++
	agent := strconv.Itoa(env.agentCount)
	return "agent-" + agent, []any{agent, stemcellCID, env.vmProperties, dynamicNetwork(), []string{disk}, map[string]any{}}
}

// getRunningPod returns the VM Pod, or an error if it is not running.
func (env *chaosEnv) getRunningPod(ctx context.Context, vm string) (*corev1.Pod, error) {
	pod, err := cluster.CoreV1().Pods(env.namespace).Get(ctx, vm, metav1.GetOptions{})
	if err == nil && (pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil) {
		return nil, fmt.Errorf("%s is %s", vm, pod.Status.Phase)
	}
	return pod, err
}

// StartCounter simulates the start of a program that mounts the disk and increments its counter. It is a violation if another running
// VM Pod has the disk mounted.
func (env *chaosEnv) StartCounter(ctx context.Context, vm, disk string) error {
	vmPod, err := env.getRunningPod(ctx, vm)
	if err != nil {
		return err
	}
	env.mutex.Lock()
	defer env.mutex.Unlock()
	desired, existing := diskMount{vm, vmPod.UID}, env.mounted[disk]
	if existing == desired {
		return nil
	}
	if err := env.annotatePod(ctx, vm, "test/mounted", &disk); err != nil {
		return err
	}
	attachment, err := cluster.CoreV1().Pods(env.namespace).Get(ctx, disk+"-attachment", metav1.GetOptions{})
	if err != nil || attachment.Labels[manifest.LabelVM] != vm || !kube.IsReady(attachment) || attachment.DeletionTimestamp != nil {
		return errors.Join(fmt.Errorf("disk %s is not attached", disk), err, env.annotateWithRetry(ctx, vm, "test/mounted", nil), env.recheckAttachment(ctx, disk))
	}
	if existing.vm != "" {
		if other, err := env.getRunningPod(ctx, existing.vm); err == nil && other.UID == existing.uid {
			env.violations = append(env.violations, fmt.Sprintf("disk %s is mounted in %s and in %s", disk, existing.vm, vm))
		}
	}
	env.mounted[disk] = desired
	return nil
}

// ReadCounter returns a larger value at each call while the disk is mounted.
func (env *chaosEnv) ReadCounter(ctx context.Context, vm, disk string) (int, error) {
	vmPod, err := env.getRunningPod(ctx, vm)
	if err != nil {
		return 0, err
	}
	env.mutex.Lock()
	defer env.mutex.Unlock()
	if env.mounted[disk] != (diskMount{vm, vmPod.UID}) {
		return 0, fmt.Errorf("disk %s is not mounted in %s", disk, vm)
	}
	env.counters[disk]++
	return env.counters[disk], nil
}

// StopCounter simulates the end of the program, which unmounts the disk.
func (env *chaosEnv) StopCounter(ctx context.Context, vm, disk string) error {
	env.mutex.Lock()
	defer env.mutex.Unlock()
	if env.mounted[disk].vm != vm {
		return nil
	}
	delete(env.mounted, disk)
	return errors.Join(env.annotateWithRetry(ctx, vm, "test/mounted", nil), env.recheckAttachment(ctx, disk))
}

// Violations implements chaos.Environment.
func (env *chaosEnv) Violations() []string {
	env.mutex.Lock()
	defer env.mutex.Unlock()
	return env.violations
}

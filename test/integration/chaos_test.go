package integration

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
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

	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/manifest"
	"bosh-kubernetes-cpi/test/chaos"
)

// How the storm on simulated nodes is, unless the environment says otherwise.
const (
	chaosVMs     = 20
	chaosSeconds = 45
)

var _ = Describe("A storm over simulated nodes", func() {
	It("leaves each disk to one machine at a time, and every call works afterwards", func(ctx context.Context) {
		env := newChaosEnv(ctx)
		chaosTest := chaos.Scenario{
			Environment: env, MeanPause: 400 * time.Millisecond, Seed: uint64(GinkgoRandomSeed()), Duration: chaosSeconds * time.Second,
			Weather: append(env.podFaults().Faults(), chaos.Fault{Name: "requests fail for some seconds", Weight: 3, Inject: failRequests}),
			Log: func(format string, arguments ...any) {
				fmt.Fprintf(GinkgoWriter, time.Now().Format(time.TimeOnly)+" "+format+"\n", arguments...)
			},
		}
		if seed, ok := os.LookupEnv("STORM_SEED"); ok {
			var err error
			chaosTest.Seed, err = strconv.ParseUint(seed, 10, 64)
			Expect(err).NotTo(HaveOccurred())
		}
		for range chaosVMs {
			chaosTest.Disks = append(chaosTest.Disks, env.createDisk(ctx))
		}
		GinkgoWriter.Println("STORM_SEED", chaosTest.Seed)
		violations := chaosTest.Run(ctx)
		GinkgoWriter.Println(chaosTest.Counts())
		Expect(violations).To(BeEmpty())
	})
})

// failRequests has requests of CPIs fail for a while, by chance: their connections break, or the API server is overloaded.
func failRequests(ctx context.Context, chance *rand.Rand) error {
	var mutex sync.Mutex
	proxy.Reset(func(_ int, rw http.ResponseWriter, r *http.Request, next http.Handler) {
		mutex.Lock()
		drawn := chance.IntN(20)
		mutex.Unlock()
		switch drawn {
		case 0:
			panic(http.ErrAbortHandler)
		case 1:
			rw.WriteHeader(http.StatusServiceUnavailable)
		default:
			next.ServeHTTP(rw, r)
		}
	})
	defer proxy.Reset(nil)
	select {
	case <-ctx.Done():
	case <-time.After(3 * time.Second):
	}
	return nil
}

// chaosEnv stands in for what uses disks on real nodes. A machine that counts on a disk has it mounted: the disk's
// attachment stays, however it is told to end, and what takes it away leaves the mount as it is.
type chaosEnv struct {
	testEnv

	mutex      sync.Mutex
	agentCount int
	mounted    map[string]diskMount // by disk
	counters   map[string]int
	violations []string
}

// diskMount is where a disk is.
type diskMount struct {
	vm  string
	uid types.UID
}

func newChaosEnv(ctx context.Context) *chaosEnv {
	GinkgoHelper()
	s := &chaosEnv{testEnv: newTestEnv(ctx), mounted: map[string]diskMount{}, counters: map[string]int{}}
	remove, err := s.podFaults().SetUp(ctx)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx context.Context) { Expect(remove(ctx)).To(Succeed()) })
	watchCtx, end := context.WithCancel(context.WithoutCancel(ctx))
	DeferCleanup(end)
	go s.wakeAfterVMDeletion(watchCtx)
	return s
}

func (s *chaosEnv) podFaults() chaos.PodFaults {
	return chaos.PodFaults{Cluster: cluster, Namespace: s.namespace, BeforeKill: func(ctx context.Context, attachment *corev1.Pod) error {
		return s.annotatePod(ctx, attachment.Name, "test/killed", new("yes"))
	}}
}

// wakeAfterVMDeletion does what the end of a machine does to its mount: the attachment may leave.
func (s *chaosEnv) wakeAfterVMDeletion(ctx context.Context) {
	defer GinkgoRecover()
	pods, err := cluster.CoreV1().Pods(s.namespace).Watch(ctx, metav1.ListOptions{LabelSelector: manifest.LabelRole + "=" + manifest.RoleVM})
	Expect(err).NotTo(HaveOccurred())
	defer pods.Stop()
	for event := range pods.ResultChan() {
		if pod, isPod := event.Object.(*corev1.Pod); isPod && event.Type == watch.Deleted {
			_ = s.recheckAttachment(ctx, pod.Annotations["test/mounted"])
		}
	}
}

// recheckAttachment has an attachment that was told to end look again whether it can leave, if it is there.
func (s *chaosEnv) recheckAttachment(ctx context.Context, disk string) error {
	return s.annotateWithRetry(ctx, disk+"-attachment", "test/wakes", new(strconv.FormatInt(time.Now().UnixNano(), 36)))
}

// annotateWithRetry annotates a Pod, if it is there, once no webhook denies that.
func (s *chaosEnv) annotateWithRetry(ctx context.Context, pod, key string, value *string) error {
	return wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		err := s.annotatePod(ctx, pod, key, value)
		return err == nil || apierrors.IsNotFound(err), nil
	})
}

func (s *chaosEnv) NewVM(disk string) (cid string, arguments []any) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.agentCount++
	agent := strconv.Itoa(s.agentCount)
	return "agent-" + agent, []any{agent, stemcellCID, s.vmProperties, dynamicNetwork(), []string{disk}, map[string]any{}}
}

// getRunningPod returns the machine's Pod, when the machine runs.
func (s *chaosEnv) getRunningPod(ctx context.Context, vm string) (*corev1.Pod, error) {
	pod, err := cluster.CoreV1().Pods(s.namespace).Get(ctx, vm, metav1.GetOptions{})
	if err == nil && (pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil) {
		return nil, fmt.Errorf("%s is %s", vm, pod.Status.Phase)
	}
	return pod, err
}

func (s *chaosEnv) StartCounter(ctx context.Context, vm, disk string) error {
	vmPod, err := s.getRunningPod(ctx, vm)
	if err != nil {
		return err
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	desired, existing := diskMount{vm, vmPod.UID}, s.mounted[disk]
	if existing == desired {
		return nil
	}
	if err := s.annotatePod(ctx, vm, "test/mounted", &disk); err != nil {
		return err
	}
	attachment, err := cluster.CoreV1().Pods(s.namespace).Get(ctx, disk+"-attachment", metav1.GetOptions{})
	if err != nil || attachment.Labels[manifest.LabelVM] != vm || !kube.Ready(attachment) || attachment.DeletionTimestamp != nil {
		return errors.Join(fmt.Errorf("disk %s is not there", disk), err, s.annotateWithRetry(ctx, vm, "test/mounted", nil), s.recheckAttachment(ctx, disk))
	}
	if existing.vm != "" {
		if other, err := s.getRunningPod(ctx, existing.vm); err == nil && other.UID == existing.uid {
			s.violations = append(s.violations, fmt.Sprintf("disk %s is mounted in %s and in %s", disk, existing.vm, vm))
		}
	}
	s.mounted[disk] = desired
	return nil
}

func (s *chaosEnv) ReadCounter(ctx context.Context, vm, disk string) (int, error) {
	vmPod, err := s.getRunningPod(ctx, vm)
	if err != nil {
		return 0, err
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.mounted[disk] != (diskMount{vm, vmPod.UID}) {
		return 0, fmt.Errorf("disk %s is not mounted in %s", disk, vm)
	}
	s.counters[disk]++
	return s.counters[disk], nil
}

func (s *chaosEnv) StopCounter(ctx context.Context, vm, disk string) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.mounted[disk].vm != vm {
		return nil
	}
	delete(s.mounted, disk)
	return errors.Join(s.annotateWithRetry(ctx, vm, "test/mounted", nil), s.recheckAttachment(ctx, disk))
}

func (s *chaosEnv) Violations() []string {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.violations
}

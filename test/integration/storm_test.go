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
	"bosh-kubernetes-cpi/test/storm"
)

// How the storm on simulated nodes is, unless the environment says otherwise.
const (
	stormMachines = 20
	stormSeconds  = 45
)

var _ = Describe("A storm over simulated nodes", func() {
	It("leaves each disk to one machine at a time, and every call works afterwards", func(ctx context.Context) {
		site := newSimulation(ctx)
		rages := storm.Storm{
			Site: site, Pause: 400 * time.Millisecond, Seed: uint64(GinkgoRandomSeed()), Duration: stormSeconds * time.Second,
			Weather: append(site.pods().Weather(), storm.Weather{Name: "requests fail for some seconds", Weight: 3, Happens: disturb}),
			Log: func(format string, arguments ...any) {
				fmt.Fprintf(GinkgoWriter, time.Now().Format(time.TimeOnly)+" "+format+"\n", arguments...)
			},
		}
		if seed, given := os.LookupEnv("STORM_SEED"); given {
			var err error
			rages.Seed, err = strconv.ParseUint(seed, 10, 64)
			Expect(err).NotTo(HaveOccurred())
		}
		for range stormMachines {
			rages.Disks = append(rages.Disks, site.createDisk(ctx))
		}
		GinkgoWriter.Println("STORM_SEED", rages.Seed)
		violations := rages.Run(ctx)
		GinkgoWriter.Println(rages.Counts())
		Expect(violations).To(BeEmpty())
	})
})

// disturb has requests of CPIs fail for a while, by chance: their connections break, or the API server is overloaded.
func disturb(ctx context.Context, chance *rand.Rand) error {
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

// simulation stands in for what uses disks on real nodes. A machine that counts on a disk has it mounted: the disk's
// attachment stays, however it is told to end, and what takes it away leaves the mount as it is.
type simulation struct {
	world

	mutex      sync.Mutex
	made       int
	mounted    map[string]mount // by disk
	counters   map[string]int
	violations []string
}

// mount is where a disk is.
type mount struct {
	vm  string
	uid types.UID
}

func newSimulation(ctx context.Context) *simulation {
	GinkgoHelper()
	s := &simulation{world: newWorld(ctx), mounted: map[string]mount{}, counters: map[string]int{}}
	remove, err := s.pods().Prepare(ctx)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx context.Context) { Expect(remove(ctx)).To(Succeed()) })
	watching, end := context.WithCancel(context.WithoutCancel(ctx))
	DeferCleanup(end)
	go s.unmountEnded(watching)
	return s
}

func (s *simulation) pods() storm.Pods {
	return storm.Pods{Cluster: cluster, Namespace: s.namespace, Killed: func(ctx context.Context, attachment *corev1.Pod) error {
		return s.annotate(ctx, attachment.Name, "test/killed", new("yes"))
	}}
}

// unmountEnded does what the end of a machine does to its mount: the attachment may leave.
func (s *simulation) unmountEnded(ctx context.Context) {
	defer GinkgoRecover()
	pods, err := cluster.CoreV1().Pods(s.namespace).Watch(ctx, metav1.ListOptions{LabelSelector: manifest.LabelRole + "=" + manifest.RoleVM})
	Expect(err).NotTo(HaveOccurred())
	defer pods.Stop()
	for event := range pods.ResultChan() {
		if pod, isPod := event.Object.(*corev1.Pod); isPod && event.Type == watch.Deleted {
			_ = s.wake(ctx, pod.Annotations["test/mounted"])
		}
	}
}

// wake has an attachment that was told to end look again whether it can leave, if it is there.
func (s *simulation) wake(ctx context.Context, disk string) error {
	return s.insist(ctx, disk+"-attachment", "test/wakes", new(strconv.FormatInt(time.Now().UnixNano(), 36)))
}

// insist annotates a Pod, if it is there, once no webhook denies that.
func (s *simulation) insist(ctx context.Context, pod, key string, value *string) error {
	return wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		err := s.annotate(ctx, pod, key, value)
		return err == nil || apierrors.IsNotFound(err), nil
	})
}

func (s *simulation) NewVM(disk string) (cid string, arguments []any) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.made++
	agent := strconv.Itoa(s.made)
	return "agent-" + agent, []any{agent, stemcellCID, s.vm, onDynamic(), []string{disk}, map[string]any{}}
}

// running returns the machine's Pod, when the machine runs.
func (s *simulation) running(ctx context.Context, vm string) (*corev1.Pod, error) {
	pod, err := cluster.CoreV1().Pods(s.namespace).Get(ctx, vm, metav1.GetOptions{})
	if err == nil && (pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil) {
		return nil, fmt.Errorf("%s is %s", vm, pod.Status.Phase)
	}
	return pod, err
}

func (s *simulation) Count(ctx context.Context, vm, disk string) error {
	machine, err := s.running(ctx, vm)
	if err != nil {
		return err
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	here, at := mount{vm, machine.UID}, s.mounted[disk]
	if at == here {
		return nil
	}
	if err := s.annotate(ctx, vm, "test/mounted", &disk); err != nil {
		return err
	}
	attachment, err := cluster.CoreV1().Pods(s.namespace).Get(ctx, disk+"-attachment", metav1.GetOptions{})
	if err != nil || attachment.Labels[manifest.LabelVM] != vm || !kube.Ready(attachment) || attachment.DeletionTimestamp != nil {
		return errors.Join(fmt.Errorf("disk %s is not there", disk), err, s.insist(ctx, vm, "test/mounted", nil), s.wake(ctx, disk))
	}
	if at.vm != "" {
		if other, err := s.running(ctx, at.vm); err == nil && other.UID == at.uid {
			s.violations = append(s.violations, fmt.Sprintf("disk %s is mounted in %s and in %s", disk, at.vm, vm))
		}
	}
	s.mounted[disk] = here
	return nil
}

func (s *simulation) Read(ctx context.Context, vm, disk string) (int, error) {
	machine, err := s.running(ctx, vm)
	if err != nil {
		return 0, err
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.mounted[disk] != (mount{vm, machine.UID}) {
		return 0, fmt.Errorf("disk %s is not mounted in %s", disk, vm)
	}
	s.counters[disk]++
	return s.counters[disk], nil
}

func (s *simulation) Stop(ctx context.Context, vm, disk string) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.mounted[disk].vm != vm {
		return nil
	}
	delete(s.mounted, disk)
	return errors.Join(s.insist(ctx, vm, "test/mounted", nil), s.wake(ctx, disk))
}

func (s *simulation) Violations() []string {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.violations
}

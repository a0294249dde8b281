package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/kube/manifest"
	"bosh-kubernetes-cpi/test/apiproxy"
	"bosh-kubernetes-cpi/test/director"
)

// scenarioEnv is a world in which the calls of one scenario are disturbed, beside a machine and a disk that they do not
// speak of.
type scenarioEnv struct {
	testEnv
	vm, disk         string   // what most calls are about
	subject          string   // what the present cell's call is about, where each has its own
	subjectCount     int      // how many subjects there were
	bystanderObjects []string // the bystander's objects
	baseline         []string // what is in the namespace before a call
	baselineState    string   // what must not change
}

// Quick enough for a call that is kept hanging, and long enough for a busy computer.
var scenarioTimeouts = map[string]any{
	"create_vm": "40s", "attach_disk": "40s", "detach_disk": "40s", "delete_vm": "40s", "update_disk": "40s", "create_stemcell": "40s", "other": "40s", "request": "10s",
}

// newScenarioEnv sets the scenario's stage. Whatever the CPI is given of secrets is marked, and it logs all it can.
func newScenarioEnv(ctx context.Context, sc scenario) *scenarioEnv {
	return newScenarioEnvWithProxy(ctx, proxy, sc)
}

func newScenarioEnvWithProxy(ctx context.Context, proxy *apiproxy.Proxy, sc scenario) *scenarioEnv {
	env := newTestEnvWithProxy(ctx, proxy).withDiskStrategy(diskStrategies[sc.strategy])
	env.Director = env.directorWithConfig("timeouts", scenarioTimeouts)
	env.Director = env.directorWithConfig("log", map[string]any{"level": "debug"})
	env.Director = env.directorWithConfig("agent", map[string]any{"mbus": "nats://nats:" + canaryFor("mbus") + "@10.0.0.6:4222"})
	s := &scenarioEnv{testEnv: env}
	bystander := s.createVM(ctx, "bystander")
	s.mustCall(ctx, "attach_disk", bystander, s.createDisk(ctx))
	s.bystanderObjects = s.listAllObjects(ctx)
	s.vm = s.createVM(ctx, "one")
	Expect(s.annotatePod(ctx, s.vm, "test/reboots", new("yes"))).To(Succeed())
	if sc.disk != nil {
		s.disk = s.createUsedDisk(ctx, s.vm, sc.disk)
	}
	if sc.setup != nil {
		sc.setup(ctx, s)
	}
	s.baseline, s.baselineState = s.listAllObjects(ctx), s.invariantState(ctx, sc.strategy == "")
	return s
}

// nextSubject names the next subject.
func (s *scenarioEnv) nextSubject() string {
	s.subjectCount++
	return fmt.Sprintf("subject-%d", s.subjectCount)
}

// listAllObjects are all objects that calls make.
func (s *scenarioEnv) listAllObjects(ctx context.Context) []string {
	all := s.listObjects(ctx)
	for _, snapshot := range s.listSnapshots(ctx) {
		all = append(all, "VolumeSnapshot/"+snapshot)
	}
	slices.Sort(all)
	return all
}

// invariantState tells what no call may change of what is there: Pods and their addresses, restarts of the bystander, disks.
func (s *scenarioEnv) invariantState(ctx context.Context, samePod bool) string {
	facts := []string{}
	pods, err := cluster.CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	for _, pod := range pods.Items {
		bystander := pod.Name == "agent-bystander" || pod.Labels[manifest.LabelVM] == "agent-bystander"
		if bystander {
			facts = append(facts, fmt.Sprint(pod.Name, pod.UID, pod.Status.PodIP, pod.DeletionTimestamp, pod.Labels, pod.Annotations))
		}
		if pod.Name == s.vm {
			facts = append(facts, pod.Name+" "+pod.Status.PodIP)
			if samePod {
				facts = append(facts, string(pod.UID))
			}
		}
	}
	pvcs, err := cluster.CoreV1().PersistentVolumeClaims(s.namespace).List(ctx, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	for _, pvc := range pvcs.Items {
		if slices.Contains(s.baseline, "PersistentVolumeClaim/"+pvc.Name) || s.baseline == nil {
			facts = append(facts, fmt.Sprint(pvc.Name, pvc.UID, pvc.Spec.VolumeName, pvc.DeletionTimestamp))
		}
	}
	slices.Sort(facts)
	return fmt.Sprint(facts)
}

// deleteNewDisks deletes all disks that were not there before, as a director does with the disks that it orphaned.
func (s *scenarioEnv) deleteNewDisks(ctx context.Context) {
	for _, disk := range s.listDisks(ctx) {
		if !slices.Contains(s.baseline, "PersistentVolumeClaim/"+disk) {
			s.mustRetry(ctx, "DiskNotFound", "delete_disk", disk)
		}
	}
}

var (
	idPattern   = regexp.MustCompile(`[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{16,}`)
	namePattern = regexp.MustCompile(`subject-\d+|world-\d+-\d+`)
)

// normalizeIDs is text without what differs from one cell to the next.
func normalizeIDs(text string) string {
	return namePattern.ReplaceAllString(idPattern.ReplaceAllString(text, "ID"), "NAME")
}

// normalizedResult is what the director makes of a response.
func normalizedResult(response director.Response) string {
	raw, err := json.Marshal(response.Result)
	Expect(err).NotTo(HaveOccurred())
	return normalizeIDs(string(raw))
}

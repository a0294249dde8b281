package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/test/harness/apiproxy"
	"bosh-kubernetes-cpi/test/harness/director"
)

// scenarioEnv is the environment for the calls of one scenario. It has a bystander: a VM with a disk that no call may change.
type scenarioEnv struct {
	testEnv
	vm, disk         string   // subjects of most calls
	subject          string   // subject of the current test case, if each test case has a separate one
	subjectCount     int      // number of subjects so far
	bystanderObjects []string // objects of the bystander
	baseline         []string // all objects before a call
	baselineState    string   // see invariantState
}

// newScenarioEnv prepares the environment of a scenario. Each secret of the CPI contains a canary, and the CPI logs at debug level.
func newScenarioEnv(ctx context.Context, sc scenario) *scenarioEnv {
	return newScenarioEnvWithProxy(ctx, proxy, sc)
}

// newScenarioEnvWithProxy is like newScenarioEnv, with this proxy.
func newScenarioEnvWithProxy(ctx context.Context, proxy *apiproxy.Proxy, sc scenario) *scenarioEnv {
	env := newTestEnvWithProxy(ctx, proxy).withDiskStrategy(diskStrategies[sc.strategy])
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

// nextSubject returns a name for the next subject.
func (s *scenarioEnv) nextSubject() string {
	s.subjectCount++
	return fmt.Sprintf("subject-%d", s.subjectCount)
}

// listAllObjects returns all objects that calls create, sorted.
func (s *scenarioEnv) listAllObjects(ctx context.Context) []string {
	objects := s.listObjects(ctx)
	for _, snapshot := range s.listSnapshots(ctx) {
		objects = append(objects, "VolumeSnapshot/"+snapshot)
	}
	slices.Sort(objects)
	return objects
}

// invariantState describes what no call may change: the bystander's Pods, the VM's address, and the PVCs of the baseline. If samePod is
// true, the call must also keep the VM's Pod.
func (s *scenarioEnv) invariantState(ctx context.Context, samePod bool) string {
	descriptions := []string{}
	pods, err := cluster.CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	for _, pod := range pods.Items {
		bystander := pod.Name == "agent-bystander" || pod.Labels[manifest.LabelVM] == "agent-bystander"
		if bystander {
			descriptions = append(descriptions, fmt.Sprint(pod.Name, pod.UID, pod.Status.PodIP, pod.DeletionTimestamp, pod.Labels, pod.Annotations))
		}
		if pod.Name == s.vm {
			descriptions = append(descriptions, pod.Name+" "+pod.Status.PodIP)
			if samePod {
				descriptions = append(descriptions, string(pod.UID))
			}
		}
	}
	pvcs, err := cluster.CoreV1().PersistentVolumeClaims(s.namespace).List(ctx, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	for _, pvc := range pvcs.Items {
		if slices.Contains(s.baseline, "PersistentVolumeClaim/"+pvc.Name) || s.baseline == nil {
			descriptions = append(descriptions, fmt.Sprint(pvc.Name, pvc.UID, pvc.Spec.VolumeName, pvc.DeletionTimestamp))
		}
	}
	slices.Sort(descriptions)
	return fmt.Sprint(descriptions)
}

// deleteNewDisks deletes all disks that are not in the baseline, as a director deletes orphaned disks.
func (s *scenarioEnv) deleteNewDisks(ctx context.Context) {
	for _, disk := range s.listDisks(ctx) {
		if !slices.Contains(s.baseline, "PersistentVolumeClaim/"+disk) {
			s.mustRetry(ctx, "DiskNotFound", "delete_disk", disk)
		}
	}
}

var (
	idPattern   = regexp.MustCompile(`[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{16,}`)
	namePattern = regexp.MustCompile(`subject-\d+|` + namespacePrefix + `\d+-\d+`)
)

// normalizeIDs replaces IDs and names that differ between test cases.
func normalizeIDs(s string) string {
	return namePattern.ReplaceAllString(idPattern.ReplaceAllString(s, "ID"), "NAME")
}

// normalizedResult returns the result of a response with normalized IDs.
func normalizedResult(response director.Response) string {
	raw, err := json.Marshal(response.Result)
	Expect(err).NotTo(HaveOccurred())
	return normalizeIDs(string(raw))
}

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

// stage is a world in which the calls of one scenario are disturbed, beside a machine and a disk that they do not
// speak of.
type stage struct {
	world
	vm, disk string   // what most calls are about
	subject  string   // what the present cell's call is about, where each has its own
	made     int      // how many subjects there were
	others   []string // the bystander's objects
	clean    []string // what is in the namespace before a call
	at       string   // what must not change
}

// Quick enough for a call that is kept hanging, and long enough for a busy computer.
var stageTimeouts = map[string]any{
	"create_vm": "40s", "attach_disk": "40s", "detach_disk": "40s", "delete_vm": "40s", "update_disk": "40s", "create_stemcell": "40s", "other": "40s", "request": "10s",
}

// newStage sets the scenario's stage. Whatever the CPI is given of secrets is marked, and it logs all it can.
func newStage(ctx context.Context, played scenario) *stage {
	return newStageBehind(ctx, proxy, played)
}

func newStageBehind(ctx context.Context, proxy *apiproxy.Proxy, played scenario) *stage {
	w := newWorldBehind(ctx, proxy).of(kinds[played.kind])
	w.Director = w.with("timeouts", stageTimeouts)
	w.Director = w.with("log", map[string]any{"level": "debug"})
	w.Director = w.with("agent", map[string]any{"mbus": "nats://nats:" + planted("mbus") + "@10.0.0.6:4222"})
	s := &stage{world: w}
	bystander := s.createVM(ctx, "bystander")
	s.must(ctx, "attach_disk", bystander, s.createDisk(ctx))
	s.others = s.found(ctx)
	s.vm = s.createVM(ctx, "one")
	Expect(s.annotate(ctx, s.vm, "test/reboots", new("yes"))).To(Succeed())
	if played.disk != nil {
		s.disk = s.usedDisk(ctx, s.vm, played.disk)
	}
	if played.setup != nil {
		played.setup(ctx, s)
	}
	s.clean, s.at = s.found(ctx), s.unmoved(ctx, played.kind == "")
	return s
}

// next names the next subject.
func (s *stage) next() string {
	s.made++
	return fmt.Sprintf("subject-%d", s.made)
}

// found are all objects that calls make.
func (s *stage) found(ctx context.Context) []string {
	all := s.objects(ctx)
	for _, snapshot := range s.snapshots(ctx) {
		all = append(all, "VolumeSnapshot/"+snapshot)
	}
	slices.Sort(all)
	return all
}

// unmoved tells what no call may change of what is there: Pods and their addresses, restarts of the bystander, disks.
func (s *stage) unmoved(ctx context.Context, sameMachine bool) string {
	told := []string{}
	pods, err := cluster.CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	for _, pod := range pods.Items {
		bystander := pod.Name == "agent-bystander" || pod.Labels[manifest.LabelVM] == "agent-bystander"
		if bystander {
			told = append(told, fmt.Sprint(pod.Name, pod.UID, pod.Status.PodIP, pod.DeletionTimestamp, pod.Labels, pod.Annotations))
		}
		if pod.Name == s.vm {
			told = append(told, pod.Name+" "+pod.Status.PodIP)
			if sameMachine {
				told = append(told, string(pod.UID))
			}
		}
	}
	claims, err := cluster.CoreV1().PersistentVolumeClaims(s.namespace).List(ctx, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	for _, claim := range claims.Items {
		if slices.Contains(s.clean, "PersistentVolumeClaim/"+claim.Name) || s.clean == nil {
			told = append(told, fmt.Sprint(claim.Name, claim.UID, claim.Spec.VolumeName, claim.DeletionTimestamp))
		}
	}
	slices.Sort(told)
	return fmt.Sprint(told)
}

// removeDisks deletes all disks that were not there before, as a director does with the disks that it orphaned.
func (s *stage) removeDisks(ctx context.Context) {
	for _, disk := range s.disks(ctx) {
		if !slices.Contains(s.clean, "PersistentVolumeClaim/"+disk) {
			s.repeats(ctx, "DiskNotFound", "delete_disk", disk)
		}
	}
}

var (
	identity = regexp.MustCompile(`[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{16,}`)
	numbered = regexp.MustCompile(`subject-\d+|world-\d+-\d+`)
)

// alike is text without what differs from one cell to the next.
func alike(text string) string {
	return numbered.ReplaceAllString(identity.ReplaceAllString(text, "ID"), "NAME")
}

// answer is what the director makes of a response.
func answer(response director.Response) string {
	raw, err := json.Marshal(response.Result)
	Expect(err).NotTo(HaveOccurred())
	return alike(string(raw))
}

package integration

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/test/apiproxy"
)

// left are the Events that the CPI has left in the namespace, as operators select them.
func (w world) left(ctx context.Context) []corev1.Event {
	GinkgoHelper()
	found, err := cluster.CoreV1().Events(w.namespace).List(ctx, metav1.ListOptions{FieldSelector: "reportingComponent=bosh-kubernetes-cpi"})
	Expect(err).NotTo(HaveOccurred())
	return found.Items
}

// told matches an Event of this type, reason and message.
func told(kind, reason, message string) OmegaMatcher {
	return And(HaveField("Type", kind), HaveField("Reason", reason), HaveField("Message", MatchRegexp(message)))
}

// leavesEvents reports whether the rule gives the right to leave Events.
func leavesEvents(rule rbacv1.PolicyRule) bool {
	return rule.Resources[0] == "events" && slices.Contains(rule.Verbs, "create")
}

// withoutEventRight takes the right to leave Events away.
func (w world) withoutEventRight(ctx context.Context) {
	GinkgoHelper()
	role, err := cluster.RbacV1().Roles(w.namespace).Get(ctx, "bosh-cpi", metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	role.Rules = slices.DeleteFunc(role.Rules, leavesEvents)
	_, err = cluster.RbacV1().Roles(w.namespace).Update(ctx, role, metav1.UpdateOptions{})
	Expect(err).NotTo(HaveOccurred())
	Eventually(func() (bool, error) {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:               "system:serviceaccount:" + w.namespace + ":bosh-cpi",
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "create", Resource: "events", Namespace: w.namespace},
		}}
		answer, err := cluster.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		return err != nil || answer.Status.Allowed, err
	}).WithContext(ctx).Should(BeFalse())
}

var _ = Describe("The Events of calls", func() {
	It("are what kubectl describe shows of a machine: that it was made, its disks, and reboots", func(ctx context.Context) {
		w, vm, disk := newWorldWithAttachedDisk(ctx)
		w.must(ctx, "detach_disk", vm, disk)
		Expect(w.annotate(ctx, vm, "test/reboots", new("yes"))).To(Succeed())
		w.must(ctx, "reboot_vm", vm)
		shown, err := plane.Kubectl(ctx, "describe", "pod", vm, "--namespace", w.namespace)
		Expect(err).NotTo(HaveOccurred())
		for reason, message := range map[string]string{
			"Created": `create_vm took \d`, "DiskAttached": `attach_disk \(disk ` + disk + `\) took \d`,
			"DiskDetached": `detach_disk \(disk ` + disk + `\) took \d`, "Rebooted": `reboot_vm took \d`,
		} {
			Expect(shown).To(MatchRegexp(`Normal +` + reason + ` +\S+ +bosh-kubernetes-cpi +` + message))
		}
	})

	It("are what kubectl describe shows of a disk: that it was made, its sizes and snapshots", func(ctx context.Context) {
		w, vm := newWorldWithVM(ctx)
		disk := w.usedDisk(ctx, vm, map[string]any{"storage_class": "growing"})
		w.must(ctx, "resize_disk", disk, 128)
		w.must(ctx, "update_disk", disk, 160, map[string]any{"storage_class": "growing"})
		snapshot := w.must(ctx, "snapshot_disk", disk, map[string]any{}).Text()
		shown, err := plane.Kubectl(ctx, "describe", "pvc", disk, "--namespace", w.namespace)
		Expect(err).NotTo(HaveOccurred())
		for reason, message := range map[string]string{
			"Created": `create_disk took \d`, "DiskResized": `resize_disk \(to 128 MiB\) took \d`, "DiskUpdated": `update_disk took \d`,
			"SnapshotTaken": `snapshot_disk \(snapshot ` + snapshot + `\) took \d`,
		} {
			Expect(shown).To(MatchRegexp(`Normal +` + reason + ` +\S+ +bosh-kubernetes-cpi +` + message))
		}
	})

	It("warn of a disk that could not be detached, with who uses it", func(ctx context.Context) {
		w, vm, disk := newWorldWithAttachedDisk(ctx)
		Expect(w.annotate(ctx, disk+"-attachment", "test/busy", new("process 7 (postgres) has it mounted"))).To(Succeed())
		message := w.fails(ctx, "detach_disk", vm, disk).Message
		Expect(w.left(ctx)).To(ContainElement(And(
			told("Warning", "DetachRefused", `^detach_disk \(disk `+disk+`\) failed after \d.*process 7 \(postgres\) has it mounted`),
			HaveField("Message", HaveSuffix(": "+message)), HaveField("InvolvedObject.Name", vm))))
	})

	It("warn of a disk that another machine has", func(ctx context.Context) {
		w, vm, disk := newWorldWithAttachedDisk(ctx)
		w.fails(ctx, "attach_disk", w.createVM(ctx, "two"), disk)
		w.fails(ctx, "delete_disk", disk)
		Expect(w.left(ctx)).To(ContainElements(
			And(told("Warning", "AttachRefused", "is attached to VM "+vm), HaveField("InvolvedObject.Name", "agent-two")),
			And(told("Warning", "DeleteRefused", "is attached to VM "+vm), HaveField("InvolvedObject.Name", disk))))
	})

	It("warn of a machine that did not come up, which is gone", func(ctx context.Context) {
		w := newWorld(ctx)
		hurried := w
		hurried.Director = w.withTimeouts(map[string]any{"create_vm": "3s"})
		hurried.fails(ctx, "create_vm", "one", stemcellCID, map[string]any{"cpu": 4000, "memory": 64}, onDynamic(), []string{}, map[string]any{})
		Expect(w.left(ctx)).To(ConsistOf(And(told("Warning", "CreateFailed", "^create_vm failed after"), HaveField("InvolvedObject.Name", "agent-one"))))
	})

	It("stay, of machines and disks that are deleted, and are about just these", func(ctx context.Context) {
		w, vm, disk := newWorldWithDisk(ctx)
		pod, err := cluster.CoreV1().Pods(w.namespace).Get(ctx, vm, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		claim := w.claim(ctx, disk)
		w.must(ctx, "delete_vm", vm)
		w.must(ctx, "delete_disk", disk)
		Expect(w.left(ctx)).To(ContainElements(
			And(told("Normal", "Deleted", "^delete_vm took"), HaveField("InvolvedObject", Equal(corev1.ObjectReference{
				APIVersion: "v1", Kind: "Pod", Namespace: w.namespace, Name: vm, UID: pod.UID}))),
			And(told("Normal", "Deleted", "^delete_disk took"), HaveField("InvolvedObject", Equal(corev1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: w.namespace, Name: disk, UID: claim.UID})))))
	})

	It("are on the Pod that a machine with disk_strategy: recreate has after the call", func(ctx context.Context) {
		w := newWorld(ctx).of(kinds[recreated])
		vm := w.createVM(ctx, "one")
		disk := w.createDisk(ctx)
		for _, call := range [][2]string{{"attach_disk", "DiskAttached"}, {"detach_disk", "DiskDetached"}} {
			w.must(ctx, call[0], vm, disk)
			pod, err := cluster.CoreV1().Pods(w.namespace).Get(ctx, vm, metav1.GetOptions{})
			Expect(err).NotTo(HaveOccurred())
			Expect(w.left(ctx)).To(ContainElement(And(told("Normal", call[1], call[0]), HaveField("InvolvedObject.UID", pod.UID))))
		}
	})

	It("are none of questions, and of metadata", func(ctx context.Context) {
		w, vm, disk := newWorldWithDisk(ctx)
		before := len(w.left(ctx))
		w.must(ctx, "has_vm", vm)
		w.must(ctx, "has_disk", disk)
		w.must(ctx, "get_disks", vm)
		w.must(ctx, "set_vm_metadata", vm, map[string]any{"job": "web"})
		w.must(ctx, "set_disk_metadata", disk, map[string]any{"job": "web"})
		Expect(w.left(ctx)).To(HaveLen(before))
	})

	It("are none when they are turned off, and cost no request", func(ctx context.Context) {
		w := newWorld(ctx)
		w.Director = w.with("events", map[string]any{"enabled": false})
		proxy.Reset(nil)
		w.createDisk(ctx)
		Expect(proxy.Requests()).To(HaveLen(1))
		Expect(w.left(ctx)).To(BeEmpty())
	})

	It("are none without the right to leave them, which takes one request and is no failure", func(ctx context.Context) {
		w := newWorld(ctx)
		w.withoutEventRight(ctx)
		proxy.Reset(nil)
		response := w.must(ctx, "create_disk", 64, map[string]any{}, nil)
		Expect(proxy.Requests()).To(HaveLen(2))
		Expect(response.Stderr).NotTo(ContainSubstring("Event"))
		Expect(w.left(ctx)).To(BeEmpty())
	})

	It("are left out of what later errors say of the cause", func(ctx context.Context) {
		w, vm := newWorldWithVM(ctx)
		w.fails(ctx, "attach_disk", vm, "disk-none")
		hurried := w
		hurried.Director = w.withTimeouts(map[string]any{"delete_vm": "1s"})
		release := w.keep(ctx, pods, vm)
		defer release()
		message := hurried.fails(ctx, "delete_vm", vm).Message
		Expect(message).To(ContainSubstring("does not end"))
		Expect(message).NotTo(ContainSubstring("AttachFailed"))
	})
})

var _ = Describe("The request for an Event", func() {
	const second = 2 // of create_disk's requests, after the claim's
	const late = 20 * time.Second

	for name, fault := range map[string]apiproxy.Fault{
		"is never answered":      apiproxy.Hanging(second),
		"is answered much later": apiproxy.Slow(late)(second),
		"is refused":             apiproxy.Refused(http.StatusForbidden, metav1.StatusReasonForbidden)(second),
	} {
		It("that "+name+" does not change or noticeably delay the call", func(ctx context.Context) {
			w := newWorld(ctx)
			proxy.Reset(fault)
			started := time.Now()
			Expect(w.createDisk(ctx)).To(HavePrefix("disk-"))
			Expect(time.Since(started)).To(BeNumerically("<", late))
			Expect(proxy.Requests()).To(ContainElement(MatchRegexp("^POST .*/events$")))
		})
	}

	for name, fault := range map[string]apiproxy.Fault{
		"whose answer is lost":       apiproxy.ResetAfter(second),
		"whose connection breaks":    apiproxy.ResetBefore(second),
		"that cannot be served once": apiproxy.Unavailable(second),
	} {
		It(name+" is repeated, and leaves one Event", func(ctx context.Context) {
			w := newWorld(ctx)
			proxy.Reset(fault)
			disk := w.createDisk(ctx)
			Expect(w.left(ctx)).To(ConsistOf(And(told("Normal", "Created", "^create_disk took"), HaveField("InvolvedObject.Name", disk))))
		})
	}

	It("has a message of no more than Kubernetes takes", func(ctx context.Context) {
		w, vm, disk := newWorldWithAttachedDisk(ctx)
		Expect(w.annotate(ctx, disk+"-attachment", "test/busy", new(strings.Repeat("ö", 1500)))).To(Succeed())
		w.fails(ctx, "detach_disk", vm, disk)
		Expect(w.left(ctx)).To(ContainElement(And(told("Warning", "DetachRefused", "ö…$"),
			HaveField("Message", WithTransform(func(text string) int { return len(text) }, And(BeNumerically(">", 1020), BeNumerically("<=", 1024)))))),
			fmt.Sprint(w.left(ctx)))
	})
})

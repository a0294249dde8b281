package integration

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/test/harness/apiproxy"
)

// listCPIEvents returns the Events recorded by the CPI in the namespace, selected as operators select them.
func (env testEnv) listCPIEvents(ctx context.Context) []corev1.Event {
	GinkgoHelper()
	found, err := cluster.CoreV1().Events(env.namespace).List(ctx, metav1.ListOptions{FieldSelector: "reportingComponent=bosh-kubernetes-cpi"})
	Expect(err).NotTo(HaveOccurred())
	return found.Items
}

// matchEvent matches an Event by its type, its reason, and a regular expression for its message.
func matchEvent(eventType, reason, message string) OmegaMatcher {
	return And(HaveField("Type", eventType), HaveField("Reason", reason), HaveField("Message", MatchRegexp(message)))
}

// allowsEventCreate reports whether the rule grants permission to create Events.
func allowsEventCreate(rule rbacv1.PolicyRule) bool {
	return rule.Resources[0] == "events" && slices.Contains(rule.Verbs, "create")
}

// revokeEventPermission revokes the CPI's permission to create Events.
func (env testEnv) revokeEventPermission(ctx context.Context) {
	GinkgoHelper()
	role, err := cluster.RbacV1().Roles(env.namespace).Get(ctx, "bosh-cpi", metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	role.Rules = slices.DeleteFunc(role.Rules, allowsEventCreate)
	_, err = cluster.RbacV1().Roles(env.namespace).Update(ctx, role, metav1.UpdateOptions{})
	Expect(err).NotTo(HaveOccurred())
	Eventually(func() (bool, error) {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:               "system:serviceaccount:" + env.namespace + ":bosh-cpi",
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "create", Resource: "events", Namespace: env.namespace},
		}}
		result, err := cluster.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		return err != nil || result.Status.Allowed, err
	}).WithContext(ctx).Should(BeFalse())
}

var _ = Describe("The Events of calls", func() {
	It("show in kubectl describe when a VM was created, its disks, and reboots", func(ctx context.Context) {
		env, vm, disk := newTestEnvWithAttachedDisk(ctx)
		env.mustCall(ctx, "detach_disk", vm, disk)
		Expect(env.annotatePod(ctx, vm, "test/reboots", new("yes"))).To(Succeed())
		env.mustCall(ctx, "reboot_vm", vm)
		description, err := plane.Kubectl(ctx, "describe", "pod", vm, "--namespace", env.namespace)
		Expect(err).NotTo(HaveOccurred())
		for reason, message := range map[string]string{
			"Created": `create_vm took \d`, "DiskAttached": `attach_disk \(disk ` + disk + `\) took \d`,
			"DiskDetached": `detach_disk \(disk ` + disk + `\) took \d`, "Rebooted": `reboot_vm took \d`,
		} {
			Expect(description).To(MatchRegexp(`Normal +` + reason + ` +\S+ +bosh-kubernetes-cpi +` + message))
		}
	})

	It("show in kubectl describe when a disk was created, its sizes, and snapshots", func(ctx context.Context) {
		env, vm := newTestEnvWithVM(ctx)
		disk := env.createUsedDisk(ctx, vm, map[string]any{"storage_class": "growing"})
		env.mustCall(ctx, "resize_disk", disk, 128)
		env.mustCall(ctx, "update_disk", disk, 160, map[string]any{"storage_class": "growing"})
		snapshot := env.mustCall(ctx, "snapshot_disk", disk, map[string]any{}).Text()
		description, err := plane.Kubectl(ctx, "describe", "pvc", disk, "--namespace", env.namespace)
		Expect(err).NotTo(HaveOccurred())
		for reason, message := range map[string]string{
			"Created": `create_disk took \d`, "DiskResized": `resize_disk \(to 128 MiB\) took \d`, "DiskUpdated": `update_disk took \d`,
			"SnapshotTaken": `snapshot_disk \(snapshot ` + snapshot + `\) took \d`,
		} {
			Expect(description).To(MatchRegexp(`Normal +` + reason + ` +\S+ +bosh-kubernetes-cpi +` + message))
		}
	})

	It("warn about a disk that cannot be detached, and name the process that uses it", func(ctx context.Context) {
		env, vm, disk := newTestEnvWithAttachedDisk(ctx)
		Expect(env.annotatePod(ctx, disk+"-attachment", "test/busy", new("process 7 (postgres) has it mounted"))).To(Succeed())
		message := env.mustFail(ctx, "detach_disk", vm, disk).Message
		Expect(env.listCPIEvents(ctx)).To(ContainElement(And(
			matchEvent("Warning", "DetachRejected", `^detach_disk \(disk `+disk+`\) failed after \d.*process 7 \(postgres\) has it mounted`),
			HaveField("Message", HaveSuffix(": "+message)), HaveField("InvolvedObject.Name", vm))))
	})

	It("warn about a disk that is attached to another VM", func(ctx context.Context) {
		env, vm, disk := newTestEnvWithAttachedDisk(ctx)
		env.mustFail(ctx, "attach_disk", env.createVM(ctx, "two"), disk)
		env.mustFail(ctx, "delete_disk", disk)
		Expect(env.listCPIEvents(ctx)).To(ContainElements(
			And(matchEvent("Warning", "AttachRejected", "is attached to VM "+vm), HaveField("InvolvedObject.Name", "agent-two")),
			And(matchEvent("Warning", "DeleteRejected", "is attached to VM "+vm), HaveField("InvolvedObject.Name", disk))))
	})

	It("warn about a VM that did not start, and was deleted", func(ctx context.Context) {
		env := newTestEnv(ctx)
		shortTimeout := env
		shortTimeout.Director = env.directorWithTimeouts(map[string]any{"create_vm": waitTimeout})
		shortTimeout.mustFail(ctx, "create_vm", "one", stemcellCID, map[string]any{"cpu": 4000, "memory": 64}, dynamicNetwork(), []string{}, map[string]any{})
		Expect(env.listCPIEvents(ctx)).To(ConsistOf(And(matchEvent("Warning", "CreateFailed", "^create_vm failed after"), HaveField("InvolvedObject.Name", "agent-one"))))
	})

	It("remain after a VM or a disk is deleted, and refer to it by its UID", func(ctx context.Context) {
		env, vm, disk := newTestEnvWithDisk(ctx)
		pod, err := cluster.CoreV1().Pods(env.namespace).Get(ctx, vm, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		pvc := env.getPVC(ctx, disk)
		env.mustCall(ctx, "delete_vm", vm)
		env.mustCall(ctx, "delete_disk", disk)
		Expect(env.listCPIEvents(ctx)).To(ContainElements(
			And(matchEvent("Normal", "Deleted", "^delete_vm took"), HaveField("InvolvedObject", Equal(corev1.ObjectReference{
				APIVersion: "v1", Kind: "Pod", Namespace: env.namespace, Name: vm, UID: pod.UID}))),
			And(matchEvent("Normal", "Deleted", "^delete_disk took"), HaveField("InvolvedObject", Equal(corev1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: env.namespace, Name: disk, UID: pvc.UID})))))
	})

	It("refer to the Pod that a VM with disk_strategy: recreate has after the call", func(ctx context.Context) {
		env := newTestEnv(ctx).withDiskStrategy(diskStrategies[recreateStrategy])
		vm := env.createVM(ctx, "one")
		disk := env.createDisk(ctx)
		for _, call := range [][2]string{{"attach_disk", "DiskAttached"}, {"detach_disk", "DiskDetached"}} {
			env.mustCall(ctx, call[0], vm, disk)
			pod, err := cluster.CoreV1().Pods(env.namespace).Get(ctx, vm, metav1.GetOptions{})
			Expect(err).NotTo(HaveOccurred())
			Expect(env.listCPIEvents(ctx)).To(ContainElement(And(matchEvent("Normal", call[1], call[0]), HaveField("InvolvedObject.UID", pod.UID))))
		}
	})

	It("are not recorded for queries and metadata", func(ctx context.Context) {
		env, vm, disk := newTestEnvWithDisk(ctx)
		previous := len(env.listCPIEvents(ctx))
		env.mustCall(ctx, "has_vm", vm)
		env.mustCall(ctx, "has_disk", disk)
		env.mustCall(ctx, "get_disks", vm)
		env.mustCall(ctx, "set_vm_metadata", vm, map[string]any{"job": "web"})
		env.mustCall(ctx, "set_disk_metadata", disk, map[string]any{"job": "web"})
		Expect(env.listCPIEvents(ctx)).To(HaveLen(previous))
	})

	It("are not recorded if they are disabled, and cost no request then", func(ctx context.Context) {
		env := newTestEnv(ctx)
		env.Director = env.directorWithConfig("events", map[string]any{"enabled": false})
		proxy.Reset(nil)
		env.createDisk(ctx)
		Expect(proxy.Requests()).To(HaveLen(1))
		Expect(env.listCPIEvents(ctx)).To(BeEmpty())
	})

	It("are not recorded without permission to create them, which costs one request and no error", func(ctx context.Context) {
		env := newTestEnv(ctx)
		env.revokeEventPermission(ctx)
		proxy.Reset(nil)
		response := env.mustCall(ctx, "create_disk", 64, map[string]any{}, nil)
		Expect(proxy.Requests()).To(HaveLen(2))
		Expect(response.Stderr).NotTo(ContainSubstring("Event"))
		Expect(env.listCPIEvents(ctx)).To(BeEmpty())
	})

	It("are not quoted as causes in later errors", func(ctx context.Context) {
		env, vm := newTestEnvWithVM(ctx)
		env.mustFail(ctx, "attach_disk", vm, "disk-none")
		shortTimeout := env
		shortTimeout.Director = env.directorWithTimeouts(map[string]any{"delete_vm": waitTimeout})
		release := env.blockDeletion(ctx, podResource, vm)
		defer release()
		message := shortTimeout.mustFail(ctx, "delete_vm", vm).Message
		Expect(message).To(ContainSubstring("timed out deleting Pod " + vm))
		Expect(message).NotTo(ContainSubstring("AttachFailed"))
	})
})

var _ = Describe("The request for an Event", func() {
	const second = 2 // of create_disk's requests, after the POST of the PVC

	for name, newFault := range map[string]func() apiproxy.Fault{
		"gets no response": func() apiproxy.Fault { return apiproxy.NoResponse(second) },
		"gets a late response": func() apiproxy.Fault {
			late := apiproxy.NewGate()
			DeferCleanup(late.Open)
			return late.Hold(apiproxy.HeldBefore, func(n int, _ *http.Request) bool { return n == second })
		},
		"is denied": func() apiproxy.Fault {
			return apiproxy.ErrorStatus(http.StatusForbidden, metav1.StatusReasonForbidden)(second)
		},
	} {
		It("that "+name+" does not change or noticeably delay the call", func(ctx context.Context) {
			env := newTestEnv(ctx)
			proxy.Reset(newFault())
			env.Director = env.directorWithTimeouts(map[string]any{"request": "1h", "other": "1h"})
			Expect(env.createDisk(ctx)).To(HavePrefix("disk-"))
			Expect(proxy.Requests()).To(ContainElement(MatchRegexp("^POST .*/events$")))
		})
	}

	for name, fault := range map[string]apiproxy.Fault{
		"with a lost response":     apiproxy.ResetAfter(second),
		"with a broken connection": apiproxy.ResetBefore(second),
		"that first gets a 503":    apiproxy.Unavailable(second),
	} {
		It(name+" is retried, and records one Event", func(ctx context.Context) {
			env := newTestEnv(ctx)
			proxy.Reset(fault)
			disk := env.createDisk(ctx)
			Expect(env.listCPIEvents(ctx)).To(ConsistOf(And(matchEvent("Normal", "Created", "^create_disk took"), HaveField("InvolvedObject.Name", disk))))
		})
	}

	It("has a message that is truncated to the length that Kubernetes allows", func(ctx context.Context) {
		env, vm, disk := newTestEnvWithAttachedDisk(ctx)
		Expect(env.annotatePod(ctx, disk+"-attachment", "test/busy", new(strings.Repeat("ö", 1500)))).To(Succeed())
		env.mustFail(ctx, "detach_disk", vm, disk)
		Expect(env.listCPIEvents(ctx)).To(ContainElement(And(matchEvent("Warning", "DetachRejected", "ö…$"),
			HaveField("Message", WithTransform(func(message string) int { return len(message) }, And(BeNumerically(">", 1020), BeNumerically("<=", 1024)))))),
			fmt.Sprint(env.listCPIEvents(ctx)))
	})
})

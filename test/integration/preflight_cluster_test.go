package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os/exec"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/cpi/preflight"
	"bosh-kubernetes-cpi/test/harness/director"
)

// checkReport contains the results of -check by name, their order, and the exit status.
type checkReport struct {
	results map[string]preflight.Result
	order   []string
	status  int
}

// runCheck runs cpi -check -json.
func runCheck(ctx context.Context, d *director.Director, args ...string) checkReport {
	GinkgoHelper()
	out, status := runCheckProgram(ctx, d, append([]string{"-json"}, args...)...)
	var results []preflight.Result
	decoder := json.NewDecoder(bytes.NewReader(out))
	decoder.DisallowUnknownFields()
	Expect(decoder.Decode(&results)).To(Succeed(), string(out))
	report := checkReport{results: map[string]preflight.Result{}, status: status}
	for _, result := range results {
		report.results[result.Check] = result
		report.order = append(report.order, result.Check)
	}
	return report
}

// runCheckProgram runs cpi -check, and returns its output and its exit status.
func runCheckProgram(ctx context.Context, d *director.Director, args ...string) (out []byte, status int) {
	GinkgoHelper()
	command := exec.CommandContext(ctx, d.CPI, append([]string{"-configPath", d.Config, "-check", "-image", stemcellCID}, args...)...)
	var stderr bytes.Buffer
	command.Stderr = &stderr
	out, err := command.Output()
	if exitErr, ok := errors.AsType[*exec.ExitError](err); ok {
		return out, exitErr.ExitCode()
	}
	Expect(err).NotTo(HaveOccurred(), stderr.String())
	return out, 0
}

// matchResult matches a result by its verdict, and by substrings of its detail and its remedy.
func matchResult(verdict preflight.Verdict, detail, remedy string) OmegaMatcher {
	return And(HaveField("Verdict", verdict), HaveField("Detail", ContainSubstring(detail)), HaveField("Remedy", ContainSubstring(remedy)))
}

// grantCheckPermissions gives the service account of the environment the permissions in rbac-check.yaml.
func (env testEnv) grantCheckPermissions(ctx context.Context) {
	GinkgoHelper()
	applyRBAC(ctx, env.namespace, readRBACFiles(checkRBACFile))
	waitForPermissions(ctx, env.namespace,
		authorizationv1.ResourceAttributes{Verb: "list", Resource: "resourcequotas", Namespace: env.namespace},
		authorizationv1.ResourceAttributes{Verb: "list", Resource: "csinodes", Group: "storage.k8s.io"})
}

func quantity(value string) resource.Quantity { return resource.MustParse(value) }

var _ = Describe("Preflight checks of the cluster", func() {
	var env testEnv
	BeforeEach(func(ctx context.Context) { env = newTestEnv(ctx) })

	It("pass in a cluster in which the CPI works, with only its own permissions, and create no objects", func(ctx context.Context) {
		report := runCheck(ctx, env.Director)
		Expect(report.status).To(BeZero())
		var names []string
		for _, check := range preflight.Checks() {
			names = append(names, check.Name)
			if check.Kind == preflight.Required {
				Expect(report.results[check.Name].Verdict).NotTo(Equal(preflight.Fails), "%v", report.results[check.Name])
			}
		}
		Expect(report.order).To(Equal(names))
		Expect(env.listObjects(ctx)).To(BeEmpty())
	})

	It("do not fail without optional permissions, and name the file that grants them", func(ctx context.Context) {
		report := runCheck(ctx, env.Director)
		for _, name := range []string{"quotas", "limit-ranges", "pod-slots", "attach-limits"} {
			Expect(report.results[name]).To(matchResult(preflight.Unknown, "access denied", "manifests/rbac-check.yaml"), name)
		}
		Expect(report.status).To(BeZero())
	})

	It("print a table, with the remedy below each result that requires one", func(ctx context.Context) {
		out, status := runCheckProgram(ctx, env.Director)
		Expect(status).To(BeZero())
		Expect(string(out)).To(MatchRegexp(`(?m)^CHECK +KIND +RESULT +DETAIL AND REMEDY$`))
		Expect(string(out)).To(MatchRegexp(`(?m)^api-version +advised +ok +v1\.`))
		Expect(string(out)).To(MatchRegexp(`(?m)^quotas +required +unknown +access denied.*\n +→ to enable this check, apply manifests/rbac-check.yaml$`))
		GinkgoWriter.Println(string(out))
	})

	DescribeTable("name the ResourceQuota that rejects objects of calls:",
		func(ctx context.Context, quota string, checks ...string) {
			env.createQuota(ctx, corev1.ResourceList{corev1.ResourceName(quota): {}})
			report := runCheck(ctx, env.Director)
			for _, name := range checks {
				Expect(report.results[name]).To(matchResult(preflight.Fails, "exceeded quota: small", "raise the ResourceQuota"), name)
			}
			required := slices.ContainsFunc(checks, func(name string) bool { return report.results[name].Kind == preflight.Required })
			Expect(report.status).To(Equal(map[bool]int{true: 1}[required]))
		},
		Entry("Pods", "pods", "create-vm", "create-attachment", "create-reboot", "create-flush"),
		Entry("agent settings", "count/secrets", "create-settings"),
		Entry("disks", "persistentvolumeclaims", "create-disk", "storage-classes"),
		Entry("Services", "services", "create-service"),
		Entry("PodDisruptionBudgets", "count/poddisruptionbudgets.policy", "create-budget"),
		Entry("PodTemplates", "count/podtemplates", "create-template"),
		Entry("VolumeSnapshots", "count/volumesnapshots.snapshot.storage.k8s.io", "create-snapshot"),
	)

	It("name the label that a namespace requires for privileged Pods", func(ctx context.Context) {
		_, err := cluster.CoreV1().Namespaces().Patch(ctx, env.namespace, types.MergePatchType,
			[]byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"baseline"}}}`), metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
		Eventually(func(g Gomega) { // the API server may not use the label yet
			report := runCheck(ctx, env.Director)
			for _, name := range []string{"create-vm", "create-attachment", "create-reboot", "create-flush"} {
				g.Expect(report.results[name]).To(matchResult(preflight.Fails, "violates PodSecurity",
					"kubectl label namespace "+env.namespace+" pod-security.kubernetes.io/enforce=privileged"), name)
			}
			g.Expect(report.status).To(Equal(1))
		}).WithContext(ctx).Should(Succeed())
	})

	It("name the admission webhook that rejects an object", func(ctx context.Context) {
		env.denyPods(ctx, "the host network is not allowed", func(pod *corev1.Pod) bool { return pod.Spec.HostNetwork })
		Eventually(func() preflight.Result { return runCheck(ctx, env.Director).results["create-attachment"] }).WithContext(ctx).Should(
			matchResult(preflight.Fails, `"deny.integration.test" denied the request: the host network is not allowed`, "change the admission webhook"))
		Expect(runCheck(ctx, env.Director).results["create-vm"].Verdict).To(Equal(preflight.OK))
	})

	It("name the ResourceQuota that a cluster requires for the PriorityClass of attachment Pods", func(ctx context.Context) {
		env.removeAttachmentQuota(ctx)
		Expect(runCheck(ctx, env.Director).results["create-attachment"]).To(
			matchResult(preflight.Fails, "insufficient quota to match these scopes", "apply manifests/rbac.yaml with the ResourceQuota bosh-attachments"))
	})

	It("name what a webhook changes in Pods, and the consequence", func(ctx context.Context) {
		env.mutatePods(ctx, func(pod *corev1.Pod) {
			if pod.Labels == nil {
				pod.Labels = map[string]string{}
			}
			pod.Labels["changed-by"] = "webhook"
			podMutations["inserts a container before the others"](pod)
			if manifest.HasRole(pod, manifest.RoleAttachment) {
				pod.Spec.TerminationGracePeriodSeconds = new(int64(60))
			}
		})
		results := runCheck(ctx, env.Director).results
		Expect(results["create-attachment"]).To(matchResult(preflight.Fails,
			"changed terminationGracePeriodSeconds of attachment Pods from 315360000 to 60: the kubelet kills the Pod", "exempt Pods with the label"))
		for _, name := range []string{"create-vm", "create-reboot", "create-flush"} {
			Expect(results[name].Verdict).To(Equal(preflight.OK), "%s: %s", name, results[name].Detail)
		}
	})

	It("name missing permissions, and the file that grants them", func(ctx context.Context) {
		role, err := cluster.RbacV1().Roles(env.namespace).Get(ctx, "bosh-cpi", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		role.Rules = slices.DeleteFunc(role.Rules, func(rule rbacv1.PolicyRule) bool {
			return rule.Resources[0] == "secrets" || rule.Resources[0] == "volumesnapshots" || allowsEventCreate(rule)
		})
		_, err = cluster.RbacV1().Roles(env.namespace).Update(ctx, role, metav1.UpdateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Eventually(func() map[string]preflight.Result { return runCheck(ctx, env.Director).results }).WithContext(ctx).Should(And(
			HaveKeyWithValue("permissions", matchResult(preflight.Fails, "missing: secrets (get, create, patch, delete)", "kubectl bosh up --print-permissions --namespace "+env.namespace+" | kubectl apply -f -")),
			HaveKeyWithValue("permissions-snapshots", matchResult(preflight.Fails, "missing: volumesnapshots (get, list, watch, create, patch, delete)", "enable_snapshots")),
			HaveKeyWithValue("permissions-events", matchResult(preflight.Fails, "missing: events (create)", "events.enabled: false")),
			HaveKeyWithValue("address-pools", matchResult(preflight.Unknown, "access denied", "manifests/rbac-check.yaml")),
		))
		Expect(runCheck(ctx, env.Director).status).To(Equal(1))
	})

	It("report what a ResourceQuota leaves, and what a LimitRange forbids", func(ctx context.Context) {
		env.grantCheckPermissions(ctx)
		Expect(runCheck(ctx, env.Director).results["quotas"]).To(matchResult(preflight.OK, "bosh-attachments: 0 of 1M pods used, capacity for 1000000 more attachment Pods", ""))
		env.createQuota(ctx, corev1.ResourceList{"pods": quantity("5"), "limits.memory": quantity("2Gi")})
		Expect(runCheck(ctx, env.Director).results["quotas"]).To(matchResult(preflight.Warns, "0 of 2Gi limits.memory used, capacity for 2 more attachment Pods", "raise the ResourceQuota"))
		_, err := cluster.CoreV1().LimitRanges(env.namespace).Create(ctx, &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "bounds"},
			Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{Type: corev1.LimitTypeContainer, Max: corev1.ResourceList{"memory": quantity("512Mi")}}}}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Eventually(func() map[string]preflight.Result { return runCheck(ctx, env.Director).results }).WithContext(ctx).Should(And(
			HaveKeyWithValue("limit-ranges", matchResult(preflight.Fails, "the maximum memory of a Container is 512Mi, but kubernetes.pods.helper_limits has 1Gi", "change kubernetes.pods.helper_limits")),
			HaveKeyWithValue("create-attachment", matchResult(preflight.Fails, "maximum memory usage per Container is 512Mi", "kubernetes.pods.helper_limits")),
		))
	})

	DescribeTable("fail for a LimitRange that helper Pods do not meet, with a remedy that is sufficient", func(ctx context.Context, limits corev1.LimitRangeItem, messages ...string) {
		env.grantCheckPermissions(ctx)
		_, err := cluster.CoreV1().LimitRanges(env.namespace).Create(ctx, &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "bounds"},
			Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{limits}}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Eventually(func() map[string]preflight.Result { return runCheck(ctx, env.Director).results }).WithContext(ctx).Should(And(
			HaveKeyWithValue("limit-ranges", matchResult(preflight.Fails, messages[0], "kubernetes.pods.helper_requests")),
			HaveKeyWithValue("create-attachment", matchResult(preflight.Fails, messages[1], "kubernetes.pods.helper_requests")),
		))
		adapted := env.directorWithConfig("pods", map[string]any{"helper_requests": map[string]string{"memory": "256Mi"}, "helper_limits": map[string]string{"memory": "1Gi"}})
		Eventually(func() map[string]preflight.Result { return runCheck(ctx, adapted).results }).WithContext(ctx).Should(And(
			HaveKeyWithValue("limit-ranges", HaveField("Verdict", preflight.OK)), HaveKeyWithValue("create-attachment", HaveField("Verdict", preflight.OK)),
		))
	},
		Entry("with a minimum", corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Min: corev1.ResourceList{"memory": quantity("256Mi")}},
			"the minimum memory of a Container is 256Mi, but helper Pods request 32Mi", "minimum memory usage per Container is 256Mi"),
		Entry("with a ratio", corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, MaxLimitRequestRatio: corev1.ResourceList{"memory": quantity("4")}},
			"the limit of memory of a Container may be 4 times the request, but helper Pods request 32Mi", "max limit to request ratio per Container is 4"),
	)

	It("fail if a ResourceQuota leaves no Pod", func(ctx context.Context) {
		env.grantCheckPermissions(ctx)
		env.createQuota(ctx, corev1.ResourceList{"pods": {}})
		report := runCheck(ctx, env.Director)
		Expect(report.results["quotas"]).To(matchResult(preflight.Fails, "0 of 0 pods used, capacity for 0 more small VMs", "raise the ResourceQuota"))
		Expect(report.status).To(Equal(1))
	})

	It("name deleted StorageClasses that disks use, and StorageClasses that do not support expansion", func(ctx context.Context) {
		Expect(runCheck(ctx, env.Director).results["storage-classes"]).To(matchResult(preflight.Warns, "standard (the default, integration.test/nothing, no expansion)", "allowVolumeExpansion: true"))
		env.mustCall(ctx, "create_disk", 64, map[string]any{"storage_class": "vanished"}, nil)
		Expect(runCheck(ctx, env.Director).results["storage-classes"]).To(matchResult(preflight.Fails, "StorageClass vanished, which does not exist", "recreate it"))
	})

	It("name disks in use if their attachment Pods do not exist or are being deleted", func(ctx context.Context) {
		vm, unattachedDisk, detachingDisk := env.createVM(ctx, "one"), env.createDisk(ctx), env.createDisk(ctx)
		for _, disk := range []string{unattachedDisk, detachingDisk} {
			env.mustCall(ctx, "attach_disk", vm, disk)
		}
		Expect(runCheck(ctx, env.Director).results["attachments"].Verdict).To(Equal(preflight.OK))
		env.deletePodAndWait(ctx, unattachedDisk+"-attachment")
		Expect(env.annotatePod(ctx, detachingDisk+"-attachment", "test/stays", new("yes"))).To(Succeed())
		Expect(cluster.CoreV1().Pods(env.namespace).Delete(ctx, detachingDisk+"-attachment", metav1.DeleteOptions{})).To(Succeed())
		Expect(runCheck(ctx, env.Director).results["attachments"]).To(And(
			matchResult(preflight.Fails, "disks in use without an attachment Pod: "+unattachedDisk+" of VM "+vm, "collect --confirm"),
			matchResult(preflight.Fails, "disks in use with an attachment Pod that is being deleted: "+detachingDisk+" of VM "+vm, "")))
		Expect(env.annotatePod(ctx, detachingDisk+"-attachment", "test/stays", nil)).To(Succeed())
	})

	It("name disks in use if their PVCs are being deleted", func(ctx context.Context) {
		vm, disk := env.createVM(ctx, "one"), env.createDisk(ctx)
		env.mustCall(ctx, "attach_disk", vm, disk)
		Expect(cluster.CoreV1().PersistentVolumeClaims(env.namespace).Delete(ctx, disk, metav1.DeleteOptions{})).To(Succeed())
		Expect(runCheck(ctx, env.Director).results["attachments"]).To(matchResult(preflight.Fails,
			"disks in use with PVCs that are being deleted: "+disk+" of VM "+vm+" (PersistentVolume volume-", "to Retain"))
	})
})

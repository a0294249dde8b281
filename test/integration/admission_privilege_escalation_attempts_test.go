package integration

import (
	"context"
	"net/http"
	"slices"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// escalation is an attempt to do more than a role should allow. Attempts that write are dry runs.
type escalation struct {
	name string
	try  func(context.Context, escalationClient, escalationTarget) error
	// opensStream means that the response is an error even with the permission, because the request does not open the requested stream.
	opensStream bool
}

var (
	dryCreate = metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	dryUpdate = metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}}
	dryPatch  = metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}
	dryDelete = metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}
)

// escalations returns all attempts.
func escalations() []escalation {
	return slices.Concat(escalationsByRoles(), escalationsByCredentials(), escalationsByPods(), escalationsByControllers(),
		escalationsByReading(), escalationsByNodes(),
		escalationsByAdmission(), escalationsByNamespaces(), escalationsByClusterObjects())
}

var (
	allRules         = []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}}
	clusterAdminRef  = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"}
	allUsers         = []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "system:authenticated"}}
	addAllRulesPatch = []byte(`[{"op": "add", "path": "/rules/-", "value": {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}}]`)
	addAllUsersPatch = []byte(`[{"op": "add", "path": "/subjects/-", "value": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:authenticated"}}]`)
)

// escalationsByRoles returns attempts that require the verbs escalate or bind, or change existing bindings.
func escalationsByRoles() []escalation {
	meta := metav1.ObjectMeta{Name: "escalation"}
	bindingIn := func(namespace func(escalationTarget) string) func(context.Context, escalationClient, escalationTarget) error {
		return func(ctx context.Context, c escalationClient, t escalationTarget) error {
			_, err := c.RbacV1().RoleBindings(namespace(t)).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: clusterAdminRef, Subjects: allUsers}, dryCreate)
			return err
		}
	}
	return []escalation{
		{name: "more permissions in the CPI's Role", try: func(ctx context.Context, c escalationClient, t escalationTarget) error {
			_, err := c.RbacV1().Roles(t.namespace).Patch(ctx, "bosh-cpi", types.JSONPatchType, addAllRulesPatch, dryPatch)
			return err
		}},
		{name: "a Role with all permissions in the namespace", try: func(ctx context.Context, c escalationClient, t escalationTarget) error {
			_, err := c.RbacV1().Roles(t.namespace).Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: allRules}, dryCreate)
			return err
		}},
		{name: "a Role in another namespace", try: func(ctx context.Context, c escalationClient, t escalationTarget) error {
			_, err := c.RbacV1().Roles(t.victimNamespace).Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: allRules}, dryCreate)
			return err
		}},
		{name: "a ClusterRole", try: func(ctx context.Context, c escalationClient, _ escalationTarget) error {
			_, err := c.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: allRules}, dryCreate)
			return err
		}},
		{name: "more permissions in the CPI's ClusterRole", try: func(ctx context.Context, c escalationClient, t escalationTarget) error {
			_, err := c.RbacV1().ClusterRoles().Patch(ctx, "bosh-cpi-"+t.namespace, types.JSONPatchType, addAllRulesPatch, dryPatch)
			return err
		}},
		{name: "a RoleBinding to cluster-admin in the namespace", try: bindingIn(func(t escalationTarget) string { return t.namespace })},
		{name: "a RoleBinding to cluster-admin in another namespace", try: bindingIn(func(t escalationTarget) string { return t.victimNamespace })},
		{name: "a RoleBinding to cluster-admin in kube-system", try: bindingIn(func(escalationTarget) string { return metav1.NamespaceSystem })},
		{name: "another subject in the CPI's RoleBinding", try: func(ctx context.Context, c escalationClient, t escalationTarget) error {
			_, err := c.RbacV1().RoleBindings(t.namespace).Patch(ctx, "bosh-cpi", types.JSONPatchType, addAllUsersPatch, dryPatch)
			return err
		}},
		{name: "a ClusterRoleBinding to cluster-admin", try: func(ctx context.Context, c escalationClient, _ escalationTarget) error {
			_, err := c.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: clusterAdminRef, Subjects: allUsers}, dryCreate)
			return err
		}},
		{name: "another subject in the ClusterRoleBinding cluster-admin", try: func(ctx context.Context, c escalationClient, _ escalationTarget) error {
			_, err := c.RbacV1().ClusterRoleBindings().Patch(ctx, "cluster-admin", types.JSONPatchType, addAllUsersPatch, dryPatch)
			return err
		}},
		{name: "another subject in the CPI's ClusterRoleBinding", try: func(ctx context.Context, c escalationClient, t escalationTarget) error {
			_, err := c.RbacV1().ClusterRoleBindings().Patch(ctx, "bosh-cpi-"+t.namespace, types.JSONPatchType, addAllUsersPatch, dryPatch)
			return err
		}},
		{name: "the deletion of the CPI's ClusterRoleBinding", try: func(ctx context.Context, c escalationClient, t escalationTarget) error {
			return c.RbacV1().ClusterRoleBindings().Delete(ctx, "bosh-cpi-"+t.namespace, dryDelete)
		}},
	}
}

// escalationsByCredentials returns attempts to get credentials of other users, or to impersonate them.
func escalationsByCredentials() []escalation {
	impersonation := func(identity rest.ImpersonationConfig) func(context.Context, escalationClient, escalationTarget) error {
		return func(ctx context.Context, c escalationClient, t escalationTarget) error {
			_, err := c.impersonate(identity).CoreV1().Secrets(t.victimNamespace).List(ctx, metav1.ListOptions{})
			return err
		}
	}
	token := func(namespace func(escalationTarget) string, account string) func(context.Context, escalationClient, escalationTarget) error {
		return func(ctx context.Context, c escalationClient, t escalationTarget) error {
			_, err := c.CoreV1().ServiceAccounts(namespace(t)).CreateToken(ctx, account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
			return err
		}
	}
	tokenSecret := func(namespace func(escalationTarget) string, account string) func(context.Context, escalationClient, escalationTarget) error {
		return func(ctx context.Context, c escalationClient, t escalationTarget) error {
			_, err := c.CoreV1().Secrets(namespace(t)).Create(ctx, &corev1.Secret{Type: corev1.SecretTypeServiceAccountToken,
				ObjectMeta: metav1.ObjectMeta{Name: "escalation", Annotations: map[string]string{corev1.ServiceAccountNameKey: account}}}, dryCreate)
			return err
		}
	}
	ownNamespace, victim := func(t escalationTarget) string { return t.namespace }, func(t escalationTarget) string { return t.victimNamespace }
	system := func(escalationTarget) string { return metav1.NamespaceSystem }
	return []escalation{
		{name: "impersonation of the group system:masters", try: impersonation(rest.ImpersonationConfig{UserName: "attacker", Groups: []string{"system:masters"}})},
		{name: "impersonation of a service account of kube-system", try: func(ctx context.Context, c escalationClient, t escalationTarget) error {
			_, err := c.impersonate(rest.ImpersonationConfig{UserName: "system:serviceaccount:kube-system:namespace-controller"}).
				CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
			return err
		}},
		{name: "a token of a service account of kube-system", try: token(system, "default")},
		{name: "a token of a service account of another namespace", try: token(victim, "default")},
		{name: "a token of another service account of the namespace", try: token(ownNamespace, "other")},
		{name: "a token of the default service account of the namespace", try: token(ownNamespace, "default")},
		{name: "a Secret with a token of a service account of kube-system", try: tokenSecret(system, "default")},
		{name: "a Secret with a token of a service account of another namespace", try: tokenSecret(victim, "default")},
		{name: "a Secret with a token of another service account of the namespace", try: tokenSecret(ownNamespace, "other")},
		{name: "a CertificateSigningRequest for a client certificate", try: func(ctx context.Context, c escalationClient, _ escalationTarget) error {
			_, err := c.CertificatesV1().CertificateSigningRequests().Create(ctx, newCSR("escalation"), dryCreate)
			return err
		}},
		{name: "the approval of a CertificateSigningRequest", try: func(ctx context.Context, c escalationClient, t escalationTarget) error {
			request := newCSR(t.csr)
			request.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{
				{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Escalation"}}
			_, err := c.CertificatesV1().CertificateSigningRequests().UpdateApproval(ctx, t.csr, request, dryUpdate)
			return err
		}},
		{name: "the signing of a CertificateSigningRequest", try: func(ctx context.Context, c escalationClient, t escalationTarget) error {
			_, err := c.CertificatesV1().CertificateSigningRequests().Patch(ctx, t.csr, types.MergePatchType, []byte(`{"metadata": {"labels": {"a": "b"}}}`), dryPatch, "status")
			return err
		}},
	}
}

// escalationsByPods returns attempts to access or change existing Pods, or to create Pods.
func escalationsByPods() []escalation {
	subresource := func(verb, namespace, path string) func(context.Context, escalationClient, escalationTarget) error {
		return func(ctx context.Context, c escalationClient, t escalationTarget) error {
			if namespace == "victim" {
				return c.sendRequest(ctx, verb, "/api/v1/namespaces/"+t.victimNamespace+"/"+path)
			}
			return c.sendRequest(ctx, verb, "/api/v1/namespaces/"+namespace+"/"+path)
		}
	}
	return []escalation{
		{name: "exec in a Pod of another namespace", opensStream: true, try: subresource(http.MethodPost, "victim", "pods/victim/exec")},
		{name: "exec in a Pod of another namespace, with WebSocket", opensStream: true, try: subresource(http.MethodGet, "victim", "pods/victim/exec")},
		{name: "attach to a Pod of another namespace", opensStream: true, try: subresource(http.MethodPost, "victim", "pods/victim/attach")},
		{name: "port-forward to a Pod of another namespace", opensStream: true, try: subresource(http.MethodPost, "victim", "pods/victim/portforward")},
		{name: "a Pod of another namespace through the proxy of the API server", opensStream: true, try: subresource(http.MethodGet, "victim", "pods/victim/proxy")},
		{name: "a Service of another namespace through the proxy of the API server", opensStream: true, try: subresource(http.MethodGet, "default", "services/https:kubernetes:/proxy/healthz")},
		{name: "logs of a Pod of another namespace", opensStream: true, try: subresource(http.MethodGet, "victim", "pods/victim/log")},
		{name: "an ephemeral container in a Pod of another namespace", try: func(ctx context.Context, c escalationClient, t escalationTarget) error {
			_, err := c.CoreV1().Pods(t.victimNamespace).Patch(ctx, "victim", types.StrategicMergePatchType,
				[]byte(`{"spec": {"ephemeralContainers": [{"name": "escalation", "image": "i"}]}}`), dryPatch, "ephemeralcontainers")
			return err
		}},
		{name: "a Pod with another service account of the namespace", try: func(ctx context.Context, c escalationClient, t escalationTarget) error {
			_, err := c.CoreV1().Pods(t.namespace).Create(ctx, podWithServiceAccount("escalation", "other"), dryCreate)
			return err
		}},
		{name: "a Pod in another namespace", try: func(ctx context.Context, c escalationClient, t escalationTarget) error {
			_, err := c.CoreV1().Pods(t.victimNamespace).Create(ctx, podWithServiceAccount("escalation", "default"), dryCreate)
			return err
		}},
		{name: "a Pod in kube-system", try: func(ctx context.Context, c escalationClient, _ escalationTarget) error {
			_, err := c.CoreV1().Pods(metav1.NamespaceSystem).Create(ctx, podWithServiceAccount("escalation", "default"), dryCreate)
			return err
		}},
		{name: "another image in a Pod of another namespace", try: func(ctx context.Context, c escalationClient, t escalationTarget) error {
			_, err := c.CoreV1().Pods(t.victimNamespace).Patch(ctx, "victim", types.StrategicMergePatchType,
				[]byte(`{"spec": {"containers": [{"name": "c", "image": "registry.example.com/other:1"}]}}`), dryPatch)
			return err
		}},
		{name: "the deletion of a Pod of another namespace", try: func(ctx context.Context, c escalationClient, t escalationTarget) error {
			return c.CoreV1().Pods(t.victimNamespace).Delete(ctx, "victim", dryDelete)
		}},
		{name: "the eviction of a Pod of another namespace", try: func(ctx context.Context, c escalationClient, t escalationTarget) error {
			return c.CoreV1().Pods(t.victimNamespace).EvictV1(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "victim", Namespace: t.victimNamespace}, DeleteOptions: &dryDelete})
		}},
		{name: "the binding of a Pod to a node, without the scheduler", try: func(ctx context.Context, c escalationClient, t escalationTarget) error {
			return c.CoreV1().Pods(t.namespace).Bind(ctx, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: t.vm}, Target: corev1.ObjectReference{Kind: "Node", Name: "node-b"}}, dryCreate)
		}, opensStream: true},
	}
}

// escalationsByControllers returns attempts to create workloads with another service account of the namespace. Controllers create the Pods.
func escalationsByControllers() []escalation {
	labels, meta := map[string]string{"a": "b"}, metav1.ObjectMeta{Name: "escalation"}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podWithServiceAccount("", "other").Spec}
	selector, jobTemplate := &metav1.LabelSelector{MatchLabels: labels}, template
	jobTemplate.Spec.RestartPolicy = corev1.RestartPolicyNever
	job := batchv1.JobSpec{Template: jobTemplate}
	var attempts []escalation
	for _, object := range []runtime.Object{
		&appsv1.DaemonSet{ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{Selector: selector, Template: template}},
		&appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Selector: selector, Template: template}},
		&appsv1.ReplicaSet{ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{Selector: selector, Template: template}},
		&appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Selector: selector, Template: template}},
		&corev1.ReplicationController{ObjectMeta: meta, Spec: corev1.ReplicationControllerSpec{Selector: labels, Template: &template}},
		&batchv1.Job{ObjectMeta: meta, Spec: job},
		&batchv1.CronJob{ObjectMeta: meta, Spec: batchv1.CronJobSpec{Schedule: "* * * * *", JobTemplate: batchv1.JobTemplateSpec{Spec: job}}},
	} {
		kinds, _, err := scheme.Scheme.ObjectKinds(object)
		Expect(err).NotTo(HaveOccurred())
		object.GetObjectKind().SetGroupVersionKind(kinds[0])
		gvr, _ := apimeta.UnsafeGuessKindToResource(kinds[0])
		attempts = append(attempts, escalation{name: "a " + kinds[0].Kind + " with another service account of the namespace",
			try: func(ctx context.Context, c escalationClient, t escalationTarget) error {
				content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
				Expect(err).NotTo(HaveOccurred())
				client, err := dynamic.NewForConfig(c.config)
				Expect(err).NotTo(HaveOccurred())
				_, err = client.Resource(gvr).Namespace(t.namespace).Create(ctx, &unstructured.Unstructured{Object: content}, dryCreate)
				return err
			}})
	}
	return attempts
}

// escalationsByReading returns attempts to read Secrets, or the configuration of other namespaces or of the API server.
func escalationsByReading() []escalation {
	secrets := func(namespace func(escalationTarget) string) func(context.Context, escalationClient, escalationTarget) error {
		return func(ctx context.Context, c escalationClient, t escalationTarget) error {
			_, err := c.CoreV1().Secrets(namespace(t)).List(ctx, metav1.ListOptions{})
			return err
		}
	}
	return []escalation{
		{name: "the Secrets of all namespaces", try: secrets(func(escalationTarget) string { return "" })},
		{name: "the Secrets of kube-system", try: secrets(func(escalationTarget) string { return metav1.NamespaceSystem })},
		{name: "the Secrets of another namespace", try: secrets(func(t escalationTarget) string { return t.victimNamespace })},
		{name: "all Secrets of the namespace", try: secrets(func(t escalationTarget) string { return t.namespace })},
		{name: "a Secret of another namespace, by name", try: func(ctx context.Context, c escalationClient, t escalationTarget) error {
			_, err := c.CoreV1().Secrets(t.victimNamespace).Get(ctx, "victim", metav1.GetOptions{})
			return err
		}},
		{name: "a watch of the Secrets of another namespace", try: func(ctx context.Context, c escalationClient, t escalationTarget) error {
			watching, err := c.CoreV1().Secrets(t.victimNamespace).Watch(ctx, metav1.ListOptions{})
			if err == nil {
				watching.Stop()
			}
			return err
		}},
		{name: "the ConfigMaps of another namespace", try: func(ctx context.Context, c escalationClient, t escalationTarget) error {
			_, err := c.CoreV1().ConfigMaps(t.victimNamespace).List(ctx, metav1.ListOptions{})
			return err
		}},
		{name: "the configuration of the API server", opensStream: true, try: func(ctx context.Context, c escalationClient, _ escalationTarget) error {
			return c.sendRequest(ctx, http.MethodGet, "/configz")
		}},
	}
}

// escalationsByNodes returns attempts to use kubelets, or to change nodes and their volumes.
func escalationsByNodes() []escalation {
	return []escalation{
		{name: "the Pods of a kubelet through the proxy of the API server", opensStream: true, try: func(ctx context.Context, c escalationClient, _ escalationTarget) error {
			return c.sendRequest(ctx, http.MethodGet, "/api/v1/nodes/node-a/proxy/pods")
		}},
		{name: "a program in a container through the proxy of the API server", opensStream: true, try: func(ctx context.Context, c escalationClient, t escalationTarget) error {
			return c.sendRequest(ctx, http.MethodPost, "/api/v1/nodes/node-a/proxy/run/"+t.victimNamespace+"/victim/c")
		}},
		{name: "labels and taints of a node", try: func(ctx context.Context, c escalationClient, _ escalationTarget) error {
			_, err := c.CoreV1().Nodes().Patch(ctx, "node-a", types.MergePatchType, []byte(`{"metadata": {"labels": {"a": "b"}}, "spec": {"taints": null}}`), dryPatch)
			return err
		}},
		{name: "the status of a node", try: func(ctx context.Context, c escalationClient, _ escalationTarget) error {
			_, err := c.CoreV1().Nodes().Patch(ctx, "node-a", types.MergePatchType, []byte(`{"metadata": {"labels": {"a": "b"}}}`), dryPatch, "status")
			return err
		}},
		{name: "a node", try: func(ctx context.Context, c escalationClient, _ escalationTarget) error {
			_, err := c.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "escalation"}}, dryCreate)
			return err
		}},
		{name: "a PersistentVolume for a directory of a node", try: func(ctx context.Context, c escalationClient, _ escalationTarget) error {
			_, err := c.CoreV1().PersistentVolumes().Create(ctx, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "escalation"}, Spec: corev1.PersistentVolumeSpec{
				Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/etc"}}}}, dryCreate)
			return err
		}},
	}
}

// escalationsByAdmission returns attempts to create admission webhooks, or to change the admission policy.
func escalationsByAdmission() []escalation {
	meta := metav1.ObjectMeta{Name: "escalation.example.com"}
	url, noSideEffects := "https://192.0.2.1/", admissionv1.SideEffectClassNone
	config := admissionv1.WebhookClientConfig{URL: &url}
	rules := []admissionv1.RuleWithOperations{{Operations: []admissionv1.OperationType{admissionv1.Create},
		Rule: admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"secrets"}}}}
	return []escalation{
		{name: "a mutating admission webhook", try: func(ctx context.Context, c escalationClient, _ escalationTarget) error {
			_, err := c.AdmissionregistrationV1().MutatingWebhookConfigurations().Create(ctx, &admissionv1.MutatingWebhookConfiguration{ObjectMeta: meta,
				Webhooks: []admissionv1.MutatingWebhook{{Name: meta.Name, ClientConfig: config, Rules: rules, SideEffects: &noSideEffects, AdmissionReviewVersions: []string{"v1"}}}}, dryCreate)
			return err
		}},
		{name: "a validating admission webhook", try: func(ctx context.Context, c escalationClient, _ escalationTarget) error {
			_, err := c.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(ctx, &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: meta,
				Webhooks: []admissionv1.ValidatingWebhook{{Name: meta.Name, ClientConfig: config, Rules: rules, SideEffects: &noSideEffects, AdmissionReviewVersions: []string{"v1"}}}}, dryCreate)
			return err
		}},
		{name: "the deletion of the binding of the admission policy", try: func(ctx context.Context, c escalationClient, _ escalationTarget) error {
			return c.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Delete(ctx, "bosh-cpi-limits", dryDelete)
		}},
		{name: "a change of the admission policy", try: func(ctx context.Context, c escalationClient, _ escalationTarget) error {
			_, err := c.AdmissionregistrationV1().ValidatingAdmissionPolicies().Patch(ctx, "bosh-cpi-limits", types.MergePatchType, []byte(`{"spec": {"failurePolicy": "Ignore"}}`), dryPatch)
			return err
		}},
		{name: "a change of the limits of the admission policy", try: func(ctx context.Context, c escalationClient, t escalationTarget) error {
			_, err := c.CoreV1().ConfigMaps(t.namespace).Patch(ctx, "bosh-cpi-limits", types.MergePatchType, []byte(`{"data": {"images": "/"}}`), dryPatch)
			return err
		}},
		{name: "the deletion of the limits of the admission policy", try: func(ctx context.Context, c escalationClient, t escalationTarget) error {
			return c.CoreV1().ConfigMaps(t.namespace).Delete(ctx, "bosh-cpi-limits", dryDelete)
		}},
	}
}

// escalationsByNamespaces returns attempts to change namespaces.
func escalationsByNamespaces() []escalation {
	label := []byte(`{"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "privileged"}}}`)
	relabel := func(namespace func(escalationTarget) string) func(context.Context, escalationClient, escalationTarget) error {
		return func(ctx context.Context, c escalationClient, t escalationTarget) error {
			_, err := c.CoreV1().Namespaces().Patch(ctx, namespace(t), types.MergePatchType, label, dryPatch)
			return err
		}
	}
	return []escalation{
		{name: "labels of the namespace", try: relabel(func(t escalationTarget) string { return t.namespace })},
		{name: "labels of another namespace", try: relabel(func(t escalationTarget) string { return t.victimNamespace })},
		{name: "labels of kube-system", try: relabel(func(escalationTarget) string { return metav1.NamespaceSystem })},
		{name: "a namespace", try: func(ctx context.Context, c escalationClient, _ escalationTarget) error {
			_, err := c.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "escalation"}}, dryCreate)
			return err
		}},
		{name: "the deletion of another namespace", try: func(ctx context.Context, c escalationClient, t escalationTarget) error {
			return c.CoreV1().Namespaces().Delete(ctx, t.victimNamespace, dryDelete)
		}},
		{name: "a ResourceQuota in the namespace", try: func(ctx context.Context, c escalationClient, t escalationTarget) error {
			_, err := c.CoreV1().ResourceQuotas(t.namespace).Create(ctx, &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "escalation"}}, dryCreate)
			return err
		}},
	}
}

// escalationsByClusterObjects returns attempts to create cluster-scoped objects, and objects in other namespaces.
func escalationsByClusterObjects() []escalation {
	meta := metav1.ObjectMeta{Name: "escalation"}
	return []escalation{
		{name: "a service account in another namespace", try: func(ctx context.Context, c escalationClient, t escalationTarget) error {
			_, err := c.CoreV1().ServiceAccounts(t.victimNamespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta}, dryCreate)
			return err
		}},
		{name: "another endpoint for a Service of another namespace", try: func(ctx context.Context, c escalationClient, _ escalationTarget) error {
			_, err := c.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).Create(ctx, &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: "escalation",
				Labels: map[string]string{discoveryv1.LabelServiceName: "kubernetes"}}, AddressType: discoveryv1.AddressTypeIPv4,
				Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.1"}}}}, dryCreate)
			return err
		}},
		{name: "a Service in another namespace", try: func(ctx context.Context, c escalationClient, t escalationTarget) error {
			_, err := c.CoreV1().Services(t.victimNamespace).Create(ctx, &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}, dryCreate)
			return err
		}},
		{name: "a PVC in another namespace", try: func(ctx context.Context, c escalationClient, t escalationTarget) error {
			_, err := c.CoreV1().PersistentVolumeClaims(t.victimNamespace).Create(ctx, &corev1.PersistentVolumeClaim{ObjectMeta: meta, Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}}}}, dryCreate)
			return err
		}},
		{name: "a CustomResourceDefinition", opensStream: true, try: func(ctx context.Context, c escalationClient, _ escalationTarget) error {
			return c.sendRequest(ctx, http.MethodPost, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
		}},
		{name: "an APIService", opensStream: true, try: func(ctx context.Context, c escalationClient, _ escalationTarget) error {
			return c.sendRequest(ctx, http.MethodPost, "/apis/apiregistration.k8s.io/v1/apiservices")
		}},
		{name: "a PriorityClass", try: func(ctx context.Context, c escalationClient, _ escalationTarget) error {
			_, err := c.SchedulingV1().PriorityClasses().Create(ctx, &schedulingv1.PriorityClass{ObjectMeta: meta, Value: 1}, dryCreate)
			return err
		}},
		{name: "a StorageClass", try: func(ctx context.Context, c escalationClient, _ escalationTarget) error {
			_, err := c.StorageV1().StorageClasses().Create(ctx, &storagev1.StorageClass{ObjectMeta: meta, Provisioner: "example.com/none"}, dryCreate)
			return err
		}},
		{name: "the deletion of the Lease of a controller", opensStream: true, try: func(ctx context.Context, c escalationClient, _ escalationTarget) error {
			return c.sendRequest(ctx, http.MethodDelete, "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/escalation")
		}},
	}
}

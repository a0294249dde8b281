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

// escalation is an attempt to get at more than a role is for. Writing ones are dry runs.
type escalation struct {
	what string
	try  func(context.Context, escalator, prey) error
	// connects says that the answer is an error also for who may: the request asks for a stream that it does not open.
	connects bool
}

var (
	dryCreate = metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	dryUpdate = metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}}
	dryPatch  = metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}
	dryDelete = metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}
)

func escalations() []escalation {
	return slices.Concat(escalationsByRoles(), escalationsByAccounts(), escalationsByPods(), escalationsByControllers(),
		escalationsByReading(), escalationsByNodes(),
		escalationsByAdmission(), escalationsByNamespaces(), escalationsByTheCluster())
}

var (
	everything    = []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}}
	everywhere    = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"}
	anybody       = []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "system:authenticated"}}
	addEverything = []byte(`[{"op": "add", "path": "/rules/-", "value": {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}}]`)
	addAnybody    = []byte(`[{"op": "add", "path": "/subjects/-", "value": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:authenticated"}}]`)
)

// escalationsByRoles are those by the verbs escalate and bind, and by bindings that are there.
func escalationsByRoles() []escalation {
	meta := metav1.ObjectMeta{Name: "escalation"}
	bindingIn := func(namespace func(prey) string) func(context.Context, escalator, prey) error {
		return func(ctx context.Context, e escalator, p prey) error {
			_, err := e.RbacV1().RoleBindings(namespace(p)).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: everywhere, Subjects: anybody}, dryCreate)
			return err
		}
	}
	return []escalation{
		{what: "more rights in the namespace's own Role", try: func(ctx context.Context, e escalator, p prey) error {
			_, err := e.RbacV1().Roles(p.own).Patch(ctx, "bosh-cpi", types.JSONPatchType, addEverything, dryPatch)
			return err
		}},
		{what: "a Role with all rights in the namespace", try: func(ctx context.Context, e escalator, p prey) error {
			_, err := e.RbacV1().Roles(p.own).Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: everything}, dryCreate)
			return err
		}},
		{what: "a Role in another namespace", try: func(ctx context.Context, e escalator, p prey) error {
			_, err := e.RbacV1().Roles(p.victim).Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: everything}, dryCreate)
			return err
		}},
		{what: "a ClusterRole", try: func(ctx context.Context, e escalator, _ prey) error {
			_, err := e.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: everything}, dryCreate)
			return err
		}},
		{what: "more rights in the CPI's ClusterRole", try: func(ctx context.Context, e escalator, p prey) error {
			_, err := e.RbacV1().ClusterRoles().Patch(ctx, "bosh-cpi-"+p.own, types.JSONPatchType, addEverything, dryPatch)
			return err
		}},
		{what: "cluster-admin bound in the namespace", try: bindingIn(func(p prey) string { return p.own })},
		{what: "cluster-admin bound in another namespace", try: bindingIn(func(p prey) string { return p.victim })},
		{what: "cluster-admin bound in kube-system", try: bindingIn(func(prey) string { return metav1.NamespaceSystem })},
		{what: "another subject in the namespace's own RoleBinding", try: func(ctx context.Context, e escalator, p prey) error {
			_, err := e.RbacV1().RoleBindings(p.own).Patch(ctx, "bosh-cpi", types.JSONPatchType, addAnybody, dryPatch)
			return err
		}},
		{what: "a ClusterRoleBinding to cluster-admin", try: func(ctx context.Context, e escalator, _ prey) error {
			_, err := e.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: everywhere, Subjects: anybody}, dryCreate)
			return err
		}},
		{what: "another subject in the ClusterRoleBinding cluster-admin", try: func(ctx context.Context, e escalator, _ prey) error {
			_, err := e.RbacV1().ClusterRoleBindings().Patch(ctx, "cluster-admin", types.JSONPatchType, addAnybody, dryPatch)
			return err
		}},
		{what: "another subject in the CPI's ClusterRoleBinding", try: func(ctx context.Context, e escalator, p prey) error {
			_, err := e.RbacV1().ClusterRoleBindings().Patch(ctx, "bosh-cpi-"+p.own, types.JSONPatchType, addAnybody, dryPatch)
			return err
		}},
		{what: "the CPI's ClusterRoleBinding deleted", try: func(ctx context.Context, e escalator, p prey) error {
			return e.RbacV1().ClusterRoleBindings().Delete(ctx, "bosh-cpi-"+p.own, dryDelete)
		}},
	}
}

// escalationsByAccounts are those by others' names and tokens.
func escalationsByAccounts() []escalation {
	impersonation := func(who rest.ImpersonationConfig) func(context.Context, escalator, prey) error {
		return func(ctx context.Context, e escalator, p prey) error {
			_, err := e.impersonating(who).CoreV1().Secrets(p.victim).List(ctx, metav1.ListOptions{})
			return err
		}
	}
	token := func(namespace func(prey) string, account string) func(context.Context, escalator, prey) error {
		return func(ctx context.Context, e escalator, p prey) error {
			_, err := e.CoreV1().ServiceAccounts(namespace(p)).CreateToken(ctx, account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
			return err
		}
	}
	lasting := func(namespace func(prey) string, account string) func(context.Context, escalator, prey) error {
		return func(ctx context.Context, e escalator, p prey) error {
			_, err := e.CoreV1().Secrets(namespace(p)).Create(ctx, &corev1.Secret{Type: corev1.SecretTypeServiceAccountToken,
				ObjectMeta: metav1.ObjectMeta{Name: "escalation", Annotations: map[string]string{corev1.ServiceAccountNameKey: account}}}, dryCreate)
			return err
		}
	}
	own, victim := func(p prey) string { return p.own }, func(p prey) string { return p.victim }
	system := func(prey) string { return metav1.NamespaceSystem }
	return []escalation{
		{what: "requests in the name of the group system:masters", try: impersonation(rest.ImpersonationConfig{UserName: "anybody", Groups: []string{"system:masters"}})},
		{what: "requests in the name of a service account of kube-system", try: func(ctx context.Context, e escalator, p prey) error {
			_, err := e.impersonating(rest.ImpersonationConfig{UserName: "system:serviceaccount:kube-system:namespace-controller"}).
				CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
			return err
		}},
		{what: "a token of an account of kube-system", try: token(system, "default")},
		{what: "a token of an account of another namespace", try: token(victim, "default")},
		{what: "a token of another account of the namespace", try: token(own, "other")},
		{what: "a token of the namespace's default account", try: token(own, "default")},
		{what: "a Secret with a token of an account of kube-system", try: lasting(system, "default")},
		{what: "a Secret with a token of an account of another namespace", try: lasting(victim, "default")},
		{what: "a Secret with a token of another account of the namespace", try: lasting(own, "other")},
		{what: "a request for a client's certificate", try: func(ctx context.Context, e escalator, _ prey) error {
			_, err := e.CertificatesV1().CertificateSigningRequests().Create(ctx, signingRequest("escalation"), dryCreate)
			return err
		}},
		{what: "the approval of one", try: func(ctx context.Context, e escalator, p prey) error {
			request := signingRequest(p.csr)
			request.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{
				{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Escalation"}}
			_, err := e.CertificatesV1().CertificateSigningRequests().UpdateApproval(ctx, p.csr, request, dryUpdate)
			return err
		}},
		{what: "the signing of one", try: func(ctx context.Context, e escalator, p prey) error {
			_, err := e.CertificatesV1().CertificateSigningRequests().Patch(ctx, p.csr, types.MergePatchType, []byte(`{"metadata": {"labels": {"a": "b"}}}`), dryPatch, "status")
			return err
		}},
	}
}

// escalationsByPods are those by what runs, or would run.
func escalationsByPods() []escalation {
	subresource := func(verb, namespace, rest string) func(context.Context, escalator, prey) error {
		return func(ctx context.Context, e escalator, p prey) error {
			if namespace == "victim" {
				return e.does(ctx, verb, "/api/v1/namespaces/"+p.victim+"/"+rest)
			}
			return e.does(ctx, verb, "/api/v1/namespaces/"+namespace+"/"+rest)
		}
	}
	return []escalation{
		{what: "exec in another namespace's Pod", connects: true, try: subresource(http.MethodPost, "victim", "pods/victim/exec")},
		{what: "exec in another namespace's Pod, by WebSocket", connects: true, try: subresource(http.MethodGet, "victim", "pods/victim/exec")},
		{what: "attach to another namespace's Pod", connects: true, try: subresource(http.MethodPost, "victim", "pods/victim/attach")},
		{what: "ports of another namespace's Pod", connects: true, try: subresource(http.MethodPost, "victim", "pods/victim/portforward")},
		{what: "another namespace's Pod by the API server's proxy", connects: true, try: subresource(http.MethodGet, "victim", "pods/victim/proxy")},
		{what: "another namespace's Service by the API server's proxy", connects: true, try: subresource(http.MethodGet, "default", "services/https:kubernetes:/proxy/healthz")},
		{what: "logs of another namespace's Pod", connects: true, try: subresource(http.MethodGet, "victim", "pods/victim/log")},
		{what: "a container in another namespace's Pod", try: func(ctx context.Context, e escalator, p prey) error {
			_, err := e.CoreV1().Pods(p.victim).Patch(ctx, "victim", types.StrategicMergePatchType,
				[]byte(`{"spec": {"ephemeralContainers": [{"name": "escalation", "image": "i"}]}}`), dryPatch, "ephemeralcontainers")
			return err
		}},
		{what: "a Pod with another account of the namespace", try: func(ctx context.Context, e escalator, p prey) error {
			_, err := e.CoreV1().Pods(p.own).Create(ctx, podOf("escalation", "other"), dryCreate)
			return err
		}},
		{what: "a Pod in another namespace", try: func(ctx context.Context, e escalator, p prey) error {
			_, err := e.CoreV1().Pods(p.victim).Create(ctx, podOf("escalation", "default"), dryCreate)
			return err
		}},
		{what: "a Pod in kube-system", try: func(ctx context.Context, e escalator, _ prey) error {
			_, err := e.CoreV1().Pods(metav1.NamespaceSystem).Create(ctx, podOf("escalation", "default"), dryCreate)
			return err
		}},
		{what: "another image in another namespace's Pod", try: func(ctx context.Context, e escalator, p prey) error {
			_, err := e.CoreV1().Pods(p.victim).Patch(ctx, "victim", types.StrategicMergePatchType,
				[]byte(`{"spec": {"containers": [{"name": "c", "image": "registry.example.com/other:1"}]}}`), dryPatch)
			return err
		}},
		{what: "another namespace's Pod deleted", try: func(ctx context.Context, e escalator, p prey) error {
			return e.CoreV1().Pods(p.victim).Delete(ctx, "victim", dryDelete)
		}},
		{what: "another namespace's Pod evicted", try: func(ctx context.Context, e escalator, p prey) error {
			return e.CoreV1().Pods(p.victim).EvictV1(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "victim", Namespace: p.victim}, DeleteOptions: &dryDelete})
		}},
		{what: "a Pod bound to a node past the scheduler", try: func(ctx context.Context, e escalator, p prey) error {
			return e.CoreV1().Pods(p.own).Bind(ctx, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: p.vm}, Target: corev1.ObjectReference{Kind: "Node", Name: "node-b"}}, dryCreate)
		}, connects: true},
	}
}

// escalationsByControllers are those by what makes Pods in its own name, with another account of the namespace.
func escalationsByControllers() []escalation {
	labels, meta := map[string]string{"a": "b"}, metav1.ObjectMeta{Name: "escalation"}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podOf("", "other").Spec}
	selector, once := &metav1.LabelSelector{MatchLabels: labels}, template
	once.Spec.RestartPolicy = corev1.RestartPolicyNever
	job := batchv1.JobSpec{Template: once}
	var all []escalation
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
		ofKind, _ := apimeta.UnsafeGuessKindToResource(kinds[0])
		all = append(all, escalation{what: "a " + kinds[0].Kind + " with another account of the namespace",
			try: func(ctx context.Context, e escalator, p prey) error {
				content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
				Expect(err).NotTo(HaveOccurred())
				client, err := dynamic.NewForConfig(e.config)
				Expect(err).NotTo(HaveOccurred())
				_, err = client.Resource(ofKind).Namespace(p.own).Create(ctx, &unstructured.Unstructured{Object: content}, dryCreate)
				return err
			}})
	}
	return all
}

// escalationsByReading are those by what others keep secret.
func escalationsByReading() []escalation {
	secrets := func(namespace func(prey) string) func(context.Context, escalator, prey) error {
		return func(ctx context.Context, e escalator, p prey) error {
			_, err := e.CoreV1().Secrets(namespace(p)).List(ctx, metav1.ListOptions{})
			return err
		}
	}
	return []escalation{
		{what: "all Secrets", try: secrets(func(prey) string { return "" })},
		{what: "the Secrets of kube-system", try: secrets(func(prey) string { return metav1.NamespaceSystem })},
		{what: "the Secrets of another namespace", try: secrets(func(p prey) string { return p.victim })},
		{what: "the Secrets of the namespace, whatever their names", try: secrets(func(p prey) string { return p.own })},
		{what: "a Secret of another namespace, by its name", try: func(ctx context.Context, e escalator, p prey) error {
			_, err := e.CoreV1().Secrets(p.victim).Get(ctx, "victim", metav1.GetOptions{})
			return err
		}},
		{what: "another namespace's Secrets, as they change", try: func(ctx context.Context, e escalator, p prey) error {
			watching, err := e.CoreV1().Secrets(p.victim).Watch(ctx, metav1.ListOptions{})
			if err == nil {
				watching.Stop()
			}
			return err
		}},
		{what: "the ConfigMaps of another namespace", try: func(ctx context.Context, e escalator, p prey) error {
			_, err := e.CoreV1().ConfigMaps(p.victim).List(ctx, metav1.ListOptions{})
			return err
		}},
		{what: "the API server's configuration", connects: true, try: func(ctx context.Context, e escalator, _ prey) error {
			return e.does(ctx, http.MethodGet, "/configz")
		}},
	}
}

// escalationsByNodes are those by what runs all Pods.
func escalationsByNodes() []escalation {
	return []escalation{
		{what: "the kubelet's Pods by the API server's proxy", connects: true, try: func(ctx context.Context, e escalator, _ prey) error {
			return e.does(ctx, http.MethodGet, "/api/v1/nodes/node-a/proxy/pods")
		}},
		{what: "a program by the kubelet", connects: true, try: func(ctx context.Context, e escalator, p prey) error {
			return e.does(ctx, http.MethodPost, "/api/v1/nodes/node-a/proxy/run/"+p.victim+"/victim/c")
		}},
		{what: "a node's labels and taints", try: func(ctx context.Context, e escalator, _ prey) error {
			_, err := e.CoreV1().Nodes().Patch(ctx, "node-a", types.MergePatchType, []byte(`{"metadata": {"labels": {"a": "b"}}, "spec": {"taints": null}}`), dryPatch)
			return err
		}},
		{what: "a node's status", try: func(ctx context.Context, e escalator, _ prey) error {
			_, err := e.CoreV1().Nodes().Patch(ctx, "node-a", types.MergePatchType, []byte(`{"metadata": {"labels": {"a": "b"}}}`), dryPatch, "status")
			return err
		}},
		{what: "a node", try: func(ctx context.Context, e escalator, _ prey) error {
			_, err := e.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "escalation"}}, dryCreate)
			return err
		}},
		{what: "a PersistentVolume of a node's folder", try: func(ctx context.Context, e escalator, _ prey) error {
			_, err := e.CoreV1().PersistentVolumes().Create(ctx, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "escalation"}, Spec: corev1.PersistentVolumeSpec{
				Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/etc"}}}}, dryCreate)
			return err
		}},
	}
}

// escalationsByAdmission are those by who is asked about all that is created, and what limits the CPI.
func escalationsByAdmission() []escalation {
	meta := metav1.ObjectMeta{Name: "escalation.example.com"}
	url, none := "https://192.0.2.1/", admissionv1.SideEffectClassNone
	config := admissionv1.WebhookClientConfig{URL: &url}
	rules := []admissionv1.RuleWithOperations{{Operations: []admissionv1.OperationType{admissionv1.Create},
		Rule: admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"secrets"}}}}
	return []escalation{
		{what: "a webhook that changes what others create", try: func(ctx context.Context, e escalator, _ prey) error {
			_, err := e.AdmissionregistrationV1().MutatingWebhookConfigurations().Create(ctx, &admissionv1.MutatingWebhookConfiguration{ObjectMeta: meta,
				Webhooks: []admissionv1.MutatingWebhook{{Name: meta.Name, ClientConfig: config, Rules: rules, SideEffects: &none, AdmissionReviewVersions: []string{"v1"}}}}, dryCreate)
			return err
		}},
		{what: "a webhook that sees what others create", try: func(ctx context.Context, e escalator, _ prey) error {
			_, err := e.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(ctx, &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: meta,
				Webhooks: []admissionv1.ValidatingWebhook{{Name: meta.Name, ClientConfig: config, Rules: rules, SideEffects: &none, AdmissionReviewVersions: []string{"v1"}}}}, dryCreate)
			return err
		}},
		{what: "the admission policy's binding deleted", try: func(ctx context.Context, e escalator, _ prey) error {
			return e.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Delete(ctx, "bosh-cpi-limits", dryDelete)
		}},
		{what: "the admission policy changed", try: func(ctx context.Context, e escalator, _ prey) error {
			_, err := e.AdmissionregistrationV1().ValidatingAdmissionPolicies().Patch(ctx, "bosh-cpi-limits", types.MergePatchType, []byte(`{"spec": {"failurePolicy": "Ignore"}}`), dryPatch)
			return err
		}},
		{what: "the admission policy's limits changed", try: func(ctx context.Context, e escalator, p prey) error {
			_, err := e.CoreV1().ConfigMaps(p.own).Patch(ctx, "bosh-cpi-limits", types.MergePatchType, []byte(`{"data": {"images": "/"}}`), dryPatch)
			return err
		}},
		{what: "the programs that the admission policy lets helpers run", try: func(ctx context.Context, e escalator, p prey) error {
			return e.CoreV1().ConfigMaps(p.own).Delete(ctx, "bosh-cpi-scripts", dryDelete)
		}},
	}
}

// escalationsByNamespaces are those by what a namespace allows.
func escalationsByNamespaces() []escalation {
	label := []byte(`{"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "privileged"}}}`)
	relabel := func(namespace func(prey) string) func(context.Context, escalator, prey) error {
		return func(ctx context.Context, e escalator, p prey) error {
			_, err := e.CoreV1().Namespaces().Patch(ctx, namespace(p), types.MergePatchType, label, dryPatch)
			return err
		}
	}
	return []escalation{
		{what: "labels of the namespace", try: relabel(func(p prey) string { return p.own })},
		{what: "labels of another namespace", try: relabel(func(p prey) string { return p.victim })},
		{what: "labels of kube-system", try: relabel(func(prey) string { return metav1.NamespaceSystem })},
		{what: "a namespace", try: func(ctx context.Context, e escalator, _ prey) error {
			_, err := e.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "escalation"}}, dryCreate)
			return err
		}},
		{what: "another namespace deleted", try: func(ctx context.Context, e escalator, p prey) error {
			return e.CoreV1().Namespaces().Delete(ctx, p.victim, dryDelete)
		}},
		{what: "the quota of the namespace", try: func(ctx context.Context, e escalator, p prey) error {
			_, err := e.CoreV1().ResourceQuotas(p.own).Create(ctx, &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "escalation"}}, dryCreate)
			return err
		}},
	}
}

// escalationsByTheCluster are those by what belongs to all, and by what other namespaces go by.
func escalationsByTheCluster() []escalation {
	meta := metav1.ObjectMeta{Name: "escalation"}
	return []escalation{
		{what: "an account in another namespace", try: func(ctx context.Context, e escalator, p prey) error {
			_, err := e.CoreV1().ServiceAccounts(p.victim).Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta}, dryCreate)
			return err
		}},
		{what: "a Service of another namespace led elsewhere", try: func(ctx context.Context, e escalator, _ prey) error {
			_, err := e.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).Create(ctx, &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: "escalation",
				Labels: map[string]string{discoveryv1.LabelServiceName: "kubernetes"}}, AddressType: discoveryv1.AddressTypeIPv4,
				Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.1"}}}}, dryCreate)
			return err
		}},
		{what: "a Service in another namespace", try: func(ctx context.Context, e escalator, p prey) error {
			_, err := e.CoreV1().Services(p.victim).Create(ctx, &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}, dryCreate)
			return err
		}},
		{what: "a claim in another namespace", try: func(ctx context.Context, e escalator, p prey) error {
			_, err := e.CoreV1().PersistentVolumeClaims(p.victim).Create(ctx, &corev1.PersistentVolumeClaim{ObjectMeta: meta, Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}}}}, dryCreate)
			return err
		}},
		{what: "a kind of objects", connects: true, try: func(ctx context.Context, e escalator, _ prey) error {
			return e.does(ctx, http.MethodPost, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
		}},
		{what: "another API server for a group", connects: true, try: func(ctx context.Context, e escalator, _ prey) error {
			return e.does(ctx, http.MethodPost, "/apis/apiregistration.k8s.io/v1/apiservices")
		}},
		{what: "a PriorityClass", try: func(ctx context.Context, e escalator, _ prey) error {
			_, err := e.SchedulingV1().PriorityClasses().Create(ctx, &schedulingv1.PriorityClass{ObjectMeta: meta, Value: 1}, dryCreate)
			return err
		}},
		{what: "a StorageClass", try: func(ctx context.Context, e escalator, _ prey) error {
			_, err := e.StorageV1().StorageClasses().Create(ctx, &storagev1.StorageClass{ObjectMeta: meta, Provisioner: "example.com/none"}, dryCreate)
			return err
		}},
		{what: "the lease of a controller", connects: true, try: func(ctx context.Context, e escalator, _ prey) error {
			return e.does(ctx, http.MethodDelete, "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/escalation")
		}},
	}
}

package attacks

// Each of these is asked of the API server, which refuses it before it looks at what was sent.

func rightsEscalation() []Attack {
	right := func(what, from, why, method, path string, headers ...string) Attack {
		return forbidden(what, "RBAC: "+from, why, httpRequest(method, path, headers...))
	}
	const roles, accounts = "/apis/rbac.authorization.k8s.io/v1/", "/api/v1/namespaces/NAMESPACE/serviceaccounts/"
	return []Attack{
		right("all Secrets of the namespace, listed", "listing secrets", "all that is in them, at once", "GET", "/api/v1/namespaces/NAMESPACE/secrets"),
		right("all Secrets of the namespace, watched", "listing secrets", "all that is in them, at once", "GET", "/api/v1/watch/namespaces/NAMESPACE/secrets"),
		right("all Secrets of the cluster, listed", "listing secrets", "any account of the cluster", "GET", "/api/v1/secrets"),
		right("a Secret of another namespace, read", "listing secrets", "somebody else's credentials", "GET", "/api/v1/namespaces/kube-system/secrets/"+foreignName),
		right("a token of an account of kube-system", "token request", "cluster-admin", "POST", "/api/v1/namespaces/kube-system/serviceaccounts/clusterrole-aggregation-controller/token"),
		right("a token of another account of the namespace", "token request", "the rights of any account of the namespace", "POST", accounts+"default/token"),
		right("a token of its own, which does not end", "token request", "a token that outlives its revocation", "POST", accounts+"bosh-cpi/token"),
		right("a new service account", "token request", "an account with another name, which no policy is about", "POST", "/api/v1/namespaces/NAMESPACE/serviceaccounts"),
		right("somebody else, by impersonation", "impersonate verb", "anybody's rights", "GET", "/api/v1/namespaces", "Impersonate-User", "system:admin"),
		right("the group system:masters, by impersonation", "impersonate verb", "all rights", "GET", "/api/v1/namespaces", "Impersonate-User", "me", "Impersonate-Group", "system:masters"),
		right("its own Role, widened", "escalate verb", "all rights in the namespace", "PATCH", roles+"namespaces/NAMESPACE/roles/bosh-cpi"),
		right("its ClusterRole, widened", "escalate verb", "all rights", "PATCH", roles+"clusterroles/bosh-cpi-NAMESPACE"),
		right("a new ClusterRole", "escalate verb", "all rights", "POST", roles+"clusterroles"),
		right("a new Role", "escalate verb", "all rights in the namespace", "POST", roles+"namespaces/NAMESPACE/roles"),
		right("a RoleBinding to the role admin", "bind verb", "all rights in the namespace", "POST", roles+"namespaces/NAMESPACE/rolebindings"),
		right("a ClusterRoleBinding to the role cluster-admin", "bind verb", "all rights", "POST", roles+"clusterrolebindings"),
		right("its own ClusterRoleBinding, changed", "bind verb", "all rights", "PATCH", roles+"clusterrolebindings/bosh-cpi-NAMESPACE"),
		right("a certificate signing request", "CSRs and certificate issuing", "a certificate as anybody", "POST", "/apis/certificates.k8s.io/v1/certificatesigningrequests"),
		right("the approval of a certificate signing request", "CSRs and certificate issuing", "a certificate as anybody", "PATCH", "/apis/certificates.k8s.io/v1/certificatesigningrequests/"+foreignName+"/approval"),
	}
}

func rightsPods() []Attack {
	pod := func(what, from, why, method, subresource string) Attack {
		return forbidden(what, from, why, httpRequest(method, "/api/v1/namespaces/NAMESPACE/pods/agent-one/"+subresource))
	}
	const exec = "RBAC: pods/exec"
	return []Attack{
		pod("a command in a VM, by kubectl exec", exec, "root in any VM", "POST", "exec?command=id&stdout=true"),
		pod("a VM's console, by kubectl attach", exec, "its init's output and input", "POST", "attach?stdout=true"),
		pod("a VM's ports, by kubectl port-forward", exec, "what listens on its loopback", "POST", "portforward?ports=6868"),
		pod("a VM's ports, by the API server's proxy", exec, "requests from the API server", "GET", "proxy/"),
		pod("a VM's log", "RBAC: pods/exec", "what its init writes", "GET", "log"),
		pod("a Pod bound to a node", "RBAC: workload creation", "any node, past the scheduler", "POST", "binding"),
		pod("an eviction", "RBAC: workload creation", "others' Pods, past their budgets", "POST", "eviction"),
		pod("the state of a Pod, made up", "RBAC: workload creation", "traffic for a Pod that does not serve", "PATCH", "status"),
		pod("more CPU for a Pod that runs", "RBAC: workload creation", "what the quota does not see", "PATCH", "resize").sinceMinor(33),
		forbidden("all Pods of the namespace, deleted at once", "RBAC: workload creation", "foreign Pods end", httpRequest("DELETE", "/api/v1/namespaces/NAMESPACE/pods")),
		forbidden("all Pods of the cluster, listed", "RBAC: listing", "what runs where", httpRequest("GET", "/api/v1/pods")),
		forbidden("a Service, by the API server's proxy", "RBAC: pods/exec", "requests from the API server", httpRequest("GET", "/api/v1/namespaces/NAMESPACE/services/others/proxy/")),
	}
}

func rightsCluster() []Attack {
	right := func(what, from, why, method, path string) Attack {
		return forbidden(what, from, why, httpRequest(method, path))
	}
	const admission = "/apis/admissionregistration.k8s.io/v1/"
	return []Attack{
		right("a node's kubelet, by the API server's proxy", "RBAC: nodes/proxy", "commands in all Pods of the node", "GET", "/api/v1/nodes/node-a/proxy/pods"),
		right("a command by a node's kubelet", "RBAC: nodes/proxy", "commands in all Pods of the node", "POST", "/api/v1/nodes/node-a/proxy/run/NAMESPACE/agent-one/machine"),
		right("a node's labels and taints, changed", "RBAC: nodes", "others' Pods on BOSH's nodes, or BOSH's on others'", "PATCH", "/api/v1/nodes/node-a"),
		right("a node's state, made up", "RBAC: nodes", "traffic of the API server to another address", "PATCH", "/api/v1/nodes/node-a/status"),
		right("a node, deleted", "RBAC: nodes", "its Pods end", "DELETE", "/api/v1/nodes/node-a"),
		right("a new PersistentVolume", "RBAC: persistent volume creation", "any folder of a node", "POST", "/api/v1/persistentvolumes"),
		right("a PersistentVolume, changed", "RBAC: persistent volume creation", "a volume that others use", "PATCH", "/api/v1/persistentvolumes/"+foreignName),
		right("a PersistentVolume, deleted", "RBAC: persistent volume creation", "somebody's data", "DELETE", "/api/v1/persistentvolumes/"+foreignName),
		right("all PersistentVolumes, listed", "RBAC: persistent volume creation", "their attributes", "GET", "/api/v1/persistentvolumes"),
		right("a StorageClass", "RBAC: persistent volume creation", "a provisioner's parameters of choice", "POST", "/apis/storage.k8s.io/v1/storageclasses"),
		right("a VolumeAttachment, deleted", "RBAC: persistent volume creation", "a volume that goes while it is mounted", "DELETE", "/apis/storage.k8s.io/v1/volumeattachments/"+foreignName),
		right("what a VolumeSnapshot leads to in the storage", "RBAC: persistent volume creation", "a snapshot of another namespace", "POST", "/apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents"),
		right("a webhook that changes all objects", "RBAC: control admission webhooks", "all that is created in the cluster", "POST", admission+"mutatingwebhookconfigurations"),
		right("a webhook that sees all objects", "RBAC: control admission webhooks", "all Secrets that are created", "POST", admission+"validatingwebhookconfigurations"),
		right("the admission policy, deleted", "RBAC: control admission webhooks", "all that the policy refuses", "DELETE", admission+"validatingadmissionpolicies/bosh-cpi-shape"),
		right("the binding of the admission policy, changed", "RBAC: control admission webhooks", "all that the policy refuses", "PATCH", admission+"validatingadmissionpolicybindings/bosh-cpi-shape"),
		right("the limits of the admission policy, changed", "RBAC: control admission webhooks", "all that the limits refuse", "PATCH", "/api/v1/namespaces/NAMESPACE/configmaps/bosh-cpi-limits"),
		right("the helpers' programs of the admission policy, changed", "RBAC: control admission webhooks", rootOnNode, "PATCH", "/api/v1/namespaces/NAMESPACE/configmaps/bosh-cpi-scripts"),
		right("the namespace's labels, changed", "RBAC: namespace modification", "no Pod Security, no admission policy", "PATCH", "/api/v1/namespaces/NAMESPACE"),
		right("the namespace, deleted", "RBAC: namespace modification", "all that is in it", "DELETE", "/api/v1/namespaces/NAMESPACE"),
		right("a new namespace", "RBAC: namespace modification", "a place without quotas and policies", "POST", "/api/v1/namespaces"),
		right("a CustomResourceDefinition", "RBAC: custom resources", "what others take for their API", "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"),
		right("an APIService", "RBAC: custom resources", "requests and tokens of others", "POST", "/apis/apiregistration.k8s.io/v1/apiservices"),
		right("a PriorityClass", "NSA/CISA: Resource policies", "others' Pods are pushed off nodes", "POST", "/apis/scheduling.k8s.io/v1/priorityclasses"),
		right("the ResourceQuota, deleted", "NSA/CISA: Resource policies", "no bound for Pods and storage", "DELETE", "/api/v1/namespaces/NAMESPACE/resourcequotas/"+foreignName),
		right("a NetworkPolicy, deleted", "NSA/CISA: Network policies", "no bound for traffic", "DELETE", "/apis/networking.k8s.io/v1/namespaces/NAMESPACE/networkpolicies/"+foreignName),
		right("Events, deleted", "NSA/CISA: Audit logging and threat detection", "traces that are gone", "DELETE", "/api/v1/namespaces/NAMESPACE/events"),
		right("a lease of the control plane", "NSA/CISA: Control plane hardening", "a controller that stops", "PATCH", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler"),
		right("the cluster's DNS, changed", "NSA/CISA: Control plane hardening", "others' traffic, by names", "PATCH", "/api/v1/namespaces/kube-system/configmaps/coredns"),
	}
}

func rightsWorkloads() []Attack {
	workload := func(what, path string) Attack {
		return forbidden(what, "RBAC: workload creation", "Pods that the policy does not see: another user creates them", httpRequest("POST", path))
	}
	endpoints := func(what, path string) Attack {
		return forbidden(what, "NSA/CISA: Network policies", "traffic of a Service to any address", httpRequest("PATCH", path))
	}
	const apps, batch = "/apis/apps/v1/namespaces/NAMESPACE/", "/apis/batch/v1/namespaces/NAMESPACE/"
	return []Attack{
		workload("a Deployment", apps+"deployments"),
		workload("a StatefulSet", apps+"statefulsets"),
		workload("a ReplicaSet", apps+"replicasets"),
		workload("a ReplicationController", "/api/v1/namespaces/NAMESPACE/replicationcontrollers"),
		workload("a Job", batch+"jobs"),
		workload("a CronJob", batch+"cronjobs"),
		forbidden("a DaemonSet that exists, changed", "RBAC: workload creation", "another program on all nodes", httpRequest("PATCH", apps+"daemonsets/"+foreignName)),
		forbidden("a Pod in another namespace", "RBAC: workload creation", "that namespace's Secrets and accounts", httpRequest("POST", "/api/v1/namespaces/kube-system/pods")),
		forbidden("a disk in another namespace", "RBAC: workload creation", "that namespace's storage", httpRequest("POST", "/api/v1/namespaces/kube-system/persistentvolumeclaims")),
		endpoints("the Endpoints of a foreign Service", "/api/v1/namespaces/NAMESPACE/endpoints/"+foreignName),
		endpoints("the EndpointSlice of a foreign Service", "/apis/discovery.k8s.io/v1/namespaces/NAMESPACE/endpointslices/"+foreignName),
		forbidden("an Ingress", "NSA/CISA: Network policies", "names and certificates of others", httpRequest("POST", "/apis/networking.k8s.io/v1/namespaces/NAMESPACE/ingresses")),
	}
}

package attacks

// The attacks in this file are HTTP requests that the API server denies before it reads their bodies.

func permissionsEscalation() []Attack {
	permission := func(name, source, gain, method, path string, headers ...string) Attack {
		return forbidden(name, "RBAC: "+source, gain, httpRequest(method, path, headers...))
	}
	const roles, accounts = "/apis/rbac.authorization.k8s.io/v1/", "/api/v1/namespaces/NAMESPACE/serviceaccounts/"
	return []Attack{
		permission("listing all Secrets of the namespace", "listing secrets", "the content of all Secrets at once", "GET", "/api/v1/namespaces/NAMESPACE/secrets"),
		permission("watching all Secrets of the namespace", "listing secrets", "the content of all Secrets at once", "GET", "/api/v1/watch/namespaces/NAMESPACE/secrets"),
		permission("listing all Secrets of the cluster", "listing secrets", "any service account of the cluster", "GET", "/api/v1/secrets"),
		permission("reading a Secret of another namespace", "listing secrets", "another user's credentials", "GET", "/api/v1/namespaces/kube-system/secrets/"+othersName),
		permission("requesting a token of a service account of kube-system", "token request", "cluster-admin", "POST", "/api/v1/namespaces/kube-system/serviceaccounts/clusterrole-aggregation-controller/token"),
		permission("requesting a token of another service account of the namespace", "token request", "the permissions of any service account of the namespace", "POST", accounts+"default/token"),
		permission("requesting a token of its own service account", "token request", "a token that outlives the revocation of the first one", "POST", accounts+"bosh-cpi/token"),
		permission("creating a service account", "token request", "an account to which no policy applies", "POST", "/api/v1/namespaces/NAMESPACE/serviceaccounts"),
		permission("impersonating another user", "impersonate verb", "the permissions of any user", "GET", "/api/v1/namespaces", "Impersonate-User", "system:admin"),
		permission("impersonating the group system:masters", "impersonate verb", "all permissions", "GET", "/api/v1/namespaces", "Impersonate-User", "me", "Impersonate-Group", "system:masters"),
		permission("adding permissions to its own Role", "escalate verb", "all permissions in the namespace", "PATCH", roles+"namespaces/NAMESPACE/roles/bosh-cpi"),
		permission("adding permissions to its own ClusterRole", "escalate verb", "all permissions", "PATCH", roles+"clusterroles/bosh-cpi-NAMESPACE"),
		permission("creating a ClusterRole", "escalate verb", "all permissions", "POST", roles+"clusterroles"),
		permission("creating a Role", "escalate verb", "all permissions in the namespace", "POST", roles+"namespaces/NAMESPACE/roles"),
		permission("creating a RoleBinding", "bind verb", "all permissions in the namespace", "POST", roles+"namespaces/NAMESPACE/rolebindings"),
		permission("creating a ClusterRoleBinding", "bind verb", "all permissions", "POST", roles+"clusterrolebindings"),
		permission("changing its own ClusterRoleBinding", "bind verb", "all permissions", "PATCH", roles+"clusterrolebindings/bosh-cpi-NAMESPACE"),
		permission("creating a CertificateSigningRequest", "CSRs and certificate issuing", "a certificate of any user", "POST", "/apis/certificates.k8s.io/v1/certificatesigningrequests"),
		permission("approving a CertificateSigningRequest", "CSRs and certificate issuing", "a certificate of any user", "PATCH", "/apis/certificates.k8s.io/v1/certificatesigningrequests/"+othersName+"/approval"),
	}
}

func permissionsPods() []Attack {
	pod := func(name, source, gain, method, subresource string) Attack {
		return forbidden(name, source, gain, httpRequest(method, "/api/v1/namespaces/NAMESPACE/pods/agent-one/"+subresource))
	}
	const exec = "RBAC: pods/exec"
	return []Attack{
		pod("running a command in a VM, as kubectl exec does", exec, "root in any VM", "POST", "exec?command=id&stdout=true"),
		pod("attaching to a VM's console, as kubectl attach does", exec, "output and input of its init", "POST", "attach?stdout=true"),
		pod("connecting to a VM's ports, as kubectl port-forward does", exec, "services on its loopback interface", "POST", "portforward?ports=6868"),
		pod("connecting to a VM's ports through the API server's proxy", exec, "requests from the API server", "GET", "proxy/"),
		pod("reading a VM's log", exec, "output of its init", "GET", "log"),
		pod("binding a Pod to a node", "RBAC: workload creation", "any node, past the scheduler", "POST", "binding"),
		pod("evicting a Pod", "RBAC: workload creation", "termination of other users' Pods", "POST", "eviction"),
		pod("changing the status of a Pod", "RBAC: workload creation", "traffic for a Pod that is not ready", "PATCH", "status"),
		pod("resizing a running Pod", "RBAC: workload creation", "CPU beyond the quota", "PATCH", "resize").sinceMinor(33),
		forbidden("deleting all Pods of the namespace at once", "RBAC: workload creation", "termination of other users' Pods", httpRequest("DELETE", "/api/v1/namespaces/NAMESPACE/pods")),
		forbidden("listing all Pods of the cluster", "RBAC: listing", "specs and nodes of all Pods", httpRequest("GET", "/api/v1/pods")),
		forbidden("connecting to a Service through the API server's proxy", "RBAC: pods/exec", "requests from the API server", httpRequest("GET", "/api/v1/namespaces/NAMESPACE/services/others/proxy/")),
	}
}

func permissionsCluster() []Attack {
	permission := func(name, source, gain, method, path string) Attack {
		return forbidden(name, source, gain, httpRequest(method, path))
	}
	const admission = "/apis/admissionregistration.k8s.io/v1/"
	return []Attack{
		permission("connecting to a kubelet through the API server's proxy", "RBAC: nodes/proxy", "commands in all Pods of the node", "GET", "/api/v1/nodes/node-a/proxy/pods"),
		permission("running a command through a kubelet", "RBAC: nodes/proxy", "commands in all Pods of the node", "POST", "/api/v1/nodes/node-a/proxy/run/NAMESPACE/agent-one/vm"),
		permission("changing a node's labels and taints", "RBAC: nodes", "other users' Pods on BOSH's nodes, and VMs on other nodes", "PATCH", "/api/v1/nodes/node-a"),
		permission("changing a node's status", "RBAC: nodes", "traffic of the API server to another address", "PATCH", "/api/v1/nodes/node-a/status"),
		permission("deleting a node", "RBAC: nodes", "termination of its Pods", "DELETE", "/api/v1/nodes/node-a"),
		permission("creating a PersistentVolume", "RBAC: persistent volume creation", "any directory of a node", "POST", "/api/v1/persistentvolumes"),
		permission("changing a PersistentVolume", "RBAC: persistent volume creation", "another user's volume", "PATCH", "/api/v1/persistentvolumes/"+othersName),
		permission("deleting a PersistentVolume", "RBAC: persistent volume creation", "loss of another user's data", "DELETE", "/api/v1/persistentvolumes/"+othersName),
		permission("listing all PersistentVolumes", "RBAC: persistent volume creation", "attributes of all volumes", "GET", "/api/v1/persistentvolumes"),
		permission("creating a StorageClass", "RBAC: persistent volume creation", "a provisioner with arbitrary parameters", "POST", "/apis/storage.k8s.io/v1/storageclasses"),
		permission("deleting a VolumeAttachment", "RBAC: persistent volume creation", "detachment of a mounted volume", "DELETE", "/apis/storage.k8s.io/v1/volumeattachments/"+othersName),
		permission("creating a VolumeSnapshotContent", "RBAC: persistent volume creation", "a snapshot of another namespace", "POST", "/apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents"),
		permission("creating a mutating webhook", "RBAC: control admission webhooks", "control of all objects that are created in the cluster", "POST", admission+"mutatingwebhookconfigurations"),
		permission("creating a validating webhook", "RBAC: control admission webhooks", "all Secrets that are created in the cluster", "POST", admission+"validatingwebhookconfigurations"),
		permission("deleting the admission policy", "RBAC: control admission webhooks", "everything that the policy rejects", "DELETE", admission+"validatingadmissionpolicies/bosh-cpi-shape"),
		permission("changing the binding of the admission policy", "RBAC: control admission webhooks", "everything that the policy rejects", "PATCH", admission+"validatingadmissionpolicybindings/bosh-cpi-shape"),
		permission("changing the limits of the admission policy", "RBAC: control admission webhooks", "everything that the limits reject", "PATCH", "/api/v1/namespaces/NAMESPACE/configmaps/bosh-cpi-limits"),
		permission("changing the namespace's labels", "RBAC: namespace modification", "a namespace without Pod Security and admission policy", "PATCH", "/api/v1/namespaces/NAMESPACE"),
		permission("deleting the namespace", "RBAC: namespace modification", "loss of all objects in it", "DELETE", "/api/v1/namespaces/NAMESPACE"),
		permission("creating a namespace", "RBAC: namespace modification", "a namespace without quotas and policies", "POST", "/api/v1/namespaces"),
		permission("creating a CustomResourceDefinition", "RBAC: custom resources", "an API that other users may mistake for their own", "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"),
		permission("creating an APIService", "RBAC: custom resources", "requests and tokens of other users", "POST", "/apis/apiregistration.k8s.io/v1/apiservices"),
		permission("creating a PriorityClass", "NSA/CISA: Resource policies", "preemption of other Pods", "POST", "/apis/scheduling.k8s.io/v1/priorityclasses"),
		permission("deleting the ResourceQuota", "NSA/CISA: Resource policies", "unlimited Pods and storage", "DELETE", "/api/v1/namespaces/NAMESPACE/resourcequotas/"+othersName),
		permission("deleting a NetworkPolicy", "NSA/CISA: Network policies", "unlimited traffic", "DELETE", "/apis/networking.k8s.io/v1/namespaces/NAMESPACE/networkpolicies/"+othersName),
		permission("deleting Events", "NSA/CISA: Audit logging and threat detection", "removal of traces", "DELETE", "/api/v1/namespaces/NAMESPACE/events"),
		permission("changing a Lease of the control plane", "NSA/CISA: Control plane hardening", "a stopped scheduler", "PATCH", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler"),
		permission("changing the configuration of the cluster's DNS", "NSA/CISA: Control plane hardening", "other users' traffic", "PATCH", "/api/v1/namespaces/kube-system/configmaps/coredns"),
	}
}

func permissionsWorkloads() []Attack {
	workload := func(kind, path string) Attack {
		return forbidden("creating a "+kind, "RBAC: workload creation", "Pods that the policy ignores, because another user creates them", httpRequest("POST", path))
	}
	endpoints := func(kind, path string) Attack {
		return forbidden("changing the "+kind+" of another user's Service", "NSA/CISA: Network policies", "traffic of the Service to any address", httpRequest("PATCH", path))
	}
	const apps, batch = "/apis/apps/v1/namespaces/NAMESPACE/", "/apis/batch/v1/namespaces/NAMESPACE/"
	return []Attack{
		workload("Deployment", apps+"deployments"),
		workload("StatefulSet", apps+"statefulsets"),
		workload("ReplicaSet", apps+"replicasets"),
		workload("ReplicationController", "/api/v1/namespaces/NAMESPACE/replicationcontrollers"),
		workload("Job", batch+"jobs"),
		workload("CronJob", batch+"cronjobs"),
		workload("DaemonSet", apps+"daemonsets"),
		forbidden("changing an existing DaemonSet", "RBAC: workload creation", "another program on all nodes", httpRequest("PATCH", apps+"daemonsets/"+othersName)),
		forbidden("creating a Pod in another namespace", "RBAC: workload creation", "Secrets and service accounts of that namespace", httpRequest("POST", "/api/v1/namespaces/kube-system/pods")),
		forbidden("creating a disk in another namespace", "RBAC: workload creation", "storage of that namespace", httpRequest("POST", "/api/v1/namespaces/kube-system/persistentvolumeclaims")),
		endpoints("Endpoints", "/api/v1/namespaces/NAMESPACE/endpoints/"+othersName),
		endpoints("EndpointSlice", "/apis/discovery.k8s.io/v1/namespaces/NAMESPACE/endpointslices/"+othersName),
		forbidden("creating an Ingress", "NSA/CISA: Network policies", "host names and certificates of other users", httpRequest("POST", "/apis/networking.k8s.io/v1/namespaces/NAMESPACE/ingresses")),
	}
}

package attacks

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"

	"bosh-kubernetes-cpi/kube/manifest"
)

// tryPVC tries to make a disk with a change.
func tryPVC(change func(*corev1.PersistentVolumeClaim)) TryFunc {
	return func(ctx context.Context, a *Attacker) error {
		pvc := newPVC(a.Namespace, "disk-two")
		change(pvc)
		return a.createPVC(ctx, pvc)
	}
}

func pvcAttacks() []Attack {
	const volumes, foreignVolume = "RBAC: persistent volumes", "an administrator's PersistentVolume"
	spec := func(rule, what, why string, change func(*corev1.PersistentVolumeClaimSpec)) Attack {
		return refused(rule, "disk "+what, volumes, why, tryPVC(func(c *corev1.PersistentVolumeClaim) { change(&c.Spec) }))
	}
	patch := func(rule, what string, spec map[string]any) Attack {
		return refused(rule, "disk that exists and gets "+what, volumes, foreignVolume, func(ctx context.Context, a *Attacker) error {
			return a.patchObject(ctx, "persistentvolumeclaims", diskName, map[string]any{"spec": spec})
		})
	}
	return []Attack{
		spec("volume-name", "that names a PersistentVolume", foreignVolume, func(c *corev1.PersistentVolumeClaimSpec) { c.VolumeName = foreignName }),
		spec("volume-name", "that selects PersistentVolumes by their labels", foreignVolume, func(c *corev1.PersistentVolumeClaimSpec) {
			c.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": foreignName}}
		}),
		spec("storage-class", "of the class of a static PersistentVolume", foreignVolume, func(c *corev1.PersistentVolumeClaimSpec) { c.StorageClassName = new("static") }),
		spec("storage-class", "of no class", "any PersistentVolume without a class", func(c *corev1.PersistentVolumeClaimSpec) { c.StorageClassName = new("") }),
		spec("storage-class", "that names no class, in a cluster without a default one", "any PersistentVolume without a class", func(c *corev1.PersistentVolumeClaimSpec) { c.StorageClassName = nil }).
			withoutDefaultStorageClass(),
		refused("storage-class", "disk with another class in its annotation", volumes, foreignVolume, tryPVC(func(c *corev1.PersistentVolumeClaim) {
			c.Annotations[corev1.BetaStorageClassAnnotation] = "static"
		})),
		patch("volume-name", "a PersistentVolume by its name", map[string]any{"volumeName": foreignName}),
		refused("storage-class", "disk without a class that exists and gets that of a PersistentVolume", volumes, foreignVolume, func(ctx context.Context, a *Attacker) error {
			return a.patchObject(ctx, "persistentvolumeclaims", classlessDisk, map[string]any{"spec": map[string]any{"storageClassName": "static"}})
		}).withoutDefaultStorageClass(),
		spec("data-source", "with the content of a foreign disk", "its data", func(c *corev1.PersistentVolumeClaimSpec) {
			c.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: foreignName}
		}),
		spec("data-source", "that a populator of the cluster fills", "what the populator reads for whoever asks", func(c *corev1.PersistentVolumeClaimSpec) {
			c.DataSourceRef = &corev1.TypedObjectReference{APIGroup: new("example.com"), Kind: "Backup", Name: foreignName}
		}),
		listed("disk with the content of any VolumeSnapshot of the namespace", volumes, "a namespace of its own", tryPVC(func(c *corev1.PersistentVolumeClaim) {
			c.Spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: new("snapshot.storage.k8s.io"), Kind: "VolumeSnapshot", Name: foreignName}
		})),
		listed("disk of a class in `storage_classes`, of which a PersistentVolume waits to be bound", volumes, "list classes of which nobody makes PersistentVolumes by hand", tryPVC(func(*corev1.PersistentVolumeClaim) {})),
		listed("disk with annotations that a provisioner obeys", "", "what the provisioner allows", tryPVC(func(c *corev1.PersistentVolumeClaim) { c.Annotations["nfs.io/storage-path"] = "others" })),
		listed("disks that use up the storage", "NSA/CISA: Resource policies", "set a ResourceQuota", tryPVC(func(*corev1.PersistentVolumeClaim) {})),
		listed("a disk's deletion", "", "the CPI's work: delete_disk; backups, and a reclaim policy Retain", func(ctx context.Context, a *Attacker) error {
			return a.Client.CoreV1().PersistentVolumeClaims(a.Namespace).Delete(ctx, diskName, dryDelete)
		}),
	}
}

func snapshotAttacks() []Attack {
	return []Attack{
		refused("snapshot-source", "snapshot of what exists in the storage", "RBAC: persistent volumes", "a snapshot of another namespace", func(ctx context.Context, a *Attacker) error {
			return a.createSnapshot(ctx, map[string]any{"volumeSnapshotContentName": foreignName})
		}),
		listed("snapshot of a foreign disk of the namespace", "", "a namespace of its own", func(ctx context.Context, a *Attacker) error {
			return a.createSnapshot(ctx, map[string]any{"persistentVolumeClaimName": foreignName})
		}),
	}
}

// tryService tries to make a Service as the CPI does, with a change.
func tryService(change func(*corev1.Service)) TryFunc {
	return func(ctx context.Context, a *Attacker) error {
		created := manifest.Service{Name: "service-two", Type: corev1.ServiceTypeClusterIP, Ports: []corev1.ServicePort{{Port: 80}}}.Object(a.existingVM, "")
		change(created)
		_, err := a.Client.CoreV1().Services(a.Namespace).Create(ctx, created, dryCreate)
		return err
	}
}

func serviceAttacks() []Attack {
	foreign := map[string]string{"app": foreignName}
	return []Attack{
		refused("service-selector", "Service that leads to a foreign Pod", "", "a way to a Pod that offers none", tryService(func(s *corev1.Service) { s.Spec.Selector = foreign })),
		refused("service-selector", "NodePort in front of a foreign Pod", "NSA/CISA: Network policies", "a Pod, from outside of the cluster", tryService(func(s *corev1.Service) {
			s.Spec.Type, s.Spec.Selector = corev1.ServiceTypeNodePort, foreign
		})),
		refused("service-selector", "Service without a selector", "", "a name of the cluster for an address elsewhere", tryService(func(s *corev1.Service) { s.Spec.Selector = nil })),
		refused("service-selector", "Service that exists and comes to lead to a foreign Pod", "", "a way to a Pod that offers none", func(ctx context.Context, a *Attacker) error {
			return a.patchObject(ctx, "services", "service-one", map[string]any{"spec": map[string]any{"selector": foreign}})
		}),
		refused("external-ips", "Service with an external IP", "CVE-2020-8554", "others' traffic to that address", tryService(func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"192.0.2.7"} })),
		refused("external-ips", "Service that exists and gets an external IP", "CVE-2020-8554", "others' traffic to that address", func(ctx context.Context, a *Attacker) error {
			return a.patchObject(ctx, "services", "service-one", map[string]any{"spec": map[string]any{"externalIPs": []string{"192.0.2.7"}}})
		}),
		refused("external-ips", "Service that is a name elsewhere", "", "what trusts the cluster's names", tryService(func(s *corev1.Service) {
			s.Spec.Type, s.Spec.ExternalName, s.Spec.Ports = corev1.ServiceTypeExternalName, "example.org", nil
		})),
		listed("Service with an external IP, with `external_ips: \"true\"`", "CVE-2020-8554", "only for vip networks; the API server's DenyServiceExternalIPs", tryService(func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"192.0.2.7"} })).
			withLimit("external_ips", "true"),
		listed("Service that asks the load balancer for an address", "", "ResourceQuota `services.loadbalancers`; what the load balancer gives", tryService(func(s *corev1.Service) {
			s.Spec.Type, s.Spec.LoadBalancerIP = corev1.ServiceTypeLoadBalancer, "192.0.2.7"
		})),
		listed("Service that asks the load balancer for an address by an annotation", "", "ResourceQuota `services.loadbalancers`; what the load balancer gives", tryService(func(s *corev1.Service) {
			s.Spec.Type = corev1.ServiceTypeLoadBalancer
			s.Annotations["metallb.universe.tf/loadBalancerIPs"] = "192.0.2.7"
		})),
		listed("NodePort in front of a VM", "", "ResourceQuota `services.nodeports`; the nodes' firewall", tryService(func(s *corev1.Service) {
			s.Spec.Type = corev1.ServiceTypeNodePort
			s.Spec.Ports = []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(80)}}
		})),
	}
}

func pdbAttacks() []Attack {
	budget := func(selector *metav1.LabelSelector) TryFunc {
		return func(ctx context.Context, a *Attacker) error { return a.createPDB(ctx, selector) }
	}
	const drains = "no node that has one is drained"
	return []Attack{
		refused("budget", "PodDisruptionBudget over all Pods of the namespace", "", drains, budget(&metav1.LabelSelector{})),
		refused("budget", "PodDisruptionBudget over foreign Pods", "", drains, budget(&metav1.LabelSelector{MatchLabels: map[string]string{"app": foreignName}})),
		refused("budget", "PodDisruptionBudget that exists and comes to be over all Pods", "", drains, func(ctx context.Context, a *Attacker) error {
			return a.patchObject(ctx, "poddisruptionbudgets", "group-one", map[string]any{"spec": map[string]any{"selector": nil}})
		}),
		listed("PodDisruptionBudget that keeps BOSH's VMs where they are", "", "delete it; nodes of their own", budget(&metav1.LabelSelector{
			MatchLabels: map[string]string{manifest.LabelGroup: "group-one", manifest.LabelRole: manifest.RoleVM}})),
	}
}

// classlessDisk is a disk of the CPI of a time without a default StorageClass.
const classlessDisk = "disk-unclassed"

// foreignObjects are attacks on what is not the CPI's, of each kind that it makes.
func foreignObjects() []Attack {
	var all []Attack
	for _, target := range []struct{ kind, name, rules string }{ // Pods and templates are also what other rules are about
		{"pods", "Pod", "foreign|labels"}, {"podtemplates", "PodTemplate", "foreign|own-folder"}, {"secrets", "Secret", "foreign"}, {"services", "Service", "foreign"},
		{"persistentvolumeclaims", "PersistentVolumeClaim", "foreign"}, {"poddisruptionbudgets", "PodDisruptionBudget", "foreign"},
		{"volumesnapshots", "VolumeSnapshot", "foreign"}, {"daemonsets", "DaemonSet", ""},
	} {
		if target.kind != "daemonsets" { // there is no right to change them
			all = append(all, refused(target.rules, "a foreign "+target.name+", made the CPI's own", "", "what the CPI may do with its own", func(ctx context.Context, a *Attacker) error {
				patch := map[string]any{"metadata": map[string]any{"labels": map[string]any{manifest.LabelManagedBy: manifest.ManagedBy, manifest.LabelRole: manifest.RoleDisk}}}
				return a.patchObject(ctx, target.kind, foreignName, patch)
			}))
		}
		all = append(all, refused("foreign", "a foreign "+target.name+", deleted", "", "somebody else's service or data ends", func(ctx context.Context, a *Attacker) error {
			return a.Objects.Resource(resources[target.kind]).Namespace(a.Namespace).Delete(ctx, foreignName, dryDelete)
		}))
	}
	return all
}

func ownObjects() []Attack {
	secret := func(kind corev1.SecretType, labels map[string]string) TryFunc {
		return func(ctx context.Context, a *Attacker) error {
			_, err := a.Client.CoreV1().Secrets(a.Namespace).Create(ctx, &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Name: "secret-two", Labels: labels, Annotations: map[string]string{corev1.ServiceAccountNameKey: "default"}},
				Type:       kind}, dryCreate)
			return err
		}
	}
	cpiLabels := map[string]string{manifest.LabelManagedBy: manifest.ManagedBy, manifest.LabelRole: manifest.RoleVM}
	finalizer := func(kind, name, what string) Attack {
		return refused("finalizers", what+" that cannot be deleted", "", "a namespace that never goes", func(ctx context.Context, a *Attacker) error {
			return a.patchObject(ctx, kind, name, map[string]any{"metadata": map[string]any{"finalizers": []string{"example.com/never"}}})
		})
	}
	return []Attack{
		refused("secret-type", "Secret that gets a service account's token", "RBAC: token request", "the rights of any account of the namespace", secret(corev1.SecretTypeServiceAccountToken, cpiLabels)),
		refused("object-labels", "Secret without the CPI's labels", "", "what others take for theirs", secret(corev1.SecretTypeOpaque, nil)),
		refused("object-labels", "PodTemplate without the CPI's labels", "", "what others take for theirs", func(ctx context.Context, a *Attacker) error {
			podTemplate := newPodTemplate(a.Namespace, "agent-two")
			podTemplate.Labels = nil
			return a.createTemplate(ctx, podTemplate)
		}),
		refused("object-labels", "DaemonSet without the CPI's labels", "", "what others take for theirs", func(ctx context.Context, a *Attacker) error {
			set, err := a.newPrefetchDaemonSet()
			if err != nil {
				return err
			}
			set.Labels = nil
			_, err = a.Client.AppsV1().DaemonSets(a.Namespace).Create(ctx, set, dryCreate)
			return err
		}),
		refused("object-labels", "disk that loses the CPI's label", "", "what others take for theirs", func(ctx context.Context, a *Attacker) error {
			return a.patchObject(ctx, "persistentvolumeclaims", diskName, map[string]any{"metadata": map[string]any{"labels": map[string]any{manifest.LabelManagedBy: nil}}})
		}),
		refused("object-labels", "disk that gets another role", "", "what the CPI takes for another", func(ctx context.Context, a *Attacker) error {
			return a.patchObject(ctx, "persistentvolumeclaims", diskName, map[string]any{"metadata": map[string]any{"labels": map[string]any{manifest.LabelRole: manifest.RoleStorage}}})
		}),
		finalizer("pods", "agent-one", "VM Pod"),
		finalizer("podtemplates", "agent-three", "PodTemplate"),
		finalizer("services", "service-one", "Service"),
		finalizer("secrets", "agent-one", "Secret"),
		finalizer("persistentvolumeclaims", diskName, "disk"),
		refused("finalizers", "disk that loses its protection while a Pod uses it", "", "a volume that goes while it is mounted", func(ctx context.Context, a *Attacker) error {
			return a.patchObject(ctx, "persistentvolumeclaims", diskName, map[string]any{"metadata": map[string]any{"finalizers": nil}})
		}),
		refused("finalizers", "new Pod that cannot be deleted", "", "a namespace that never goes", tryVMPod(func(pod *corev1.Pod) { pod.Finalizers = []string{"example.com/never"} })),
		refused("finalizers", "Pod that keeps a foreign object from being deleted", "", "an owner that never goes", tryVMPod(func(pod *corev1.Pod) {
			pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: foreignName, UID: "none", BlockOwnerDeletion: new(true)}}
		})),
	}
}

// readAttacks are attacks that change nothing, or only what is the CPI's.
func readAttacks() []Attack {
	return []Attack{
		listed("any Secret of the namespace, read by its name", "RBAC: listing secrets", "a namespace of its own", func(ctx context.Context, a *Attacker) error {
			_, err := a.Client.CoreV1().Secrets(a.Namespace).Get(ctx, foreignName, metav1.GetOptions{})
			return err
		}),
		listed("Events about any object of the namespace, with any words", "NSA/CISA: Audit logging and threat detection", "believe the director's tasks and the audit log", func(ctx context.Context, a *Attacker) error {
			_, err := a.Client.CoreV1().Events(a.Namespace).Create(ctx, &corev1.Event{
				ObjectMeta: metav1.ObjectMeta{Name: "event-two"}, Reason: "Healthy", Message: "all is well",
				InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: a.Namespace, Name: foreignName}}, dryCreate)
			return err
		}),
		listed("a VM's deletion", "", "the CPI's work: delete_vm", func(ctx context.Context, a *Attacker) error {
			return a.Client.CoreV1().Pods(a.Namespace).Delete(ctx, "agent-one", dryDelete)
		}),
		listed("a VM's settings, with its agent's credentials, read", "RBAC: listing secrets", "the CPI's work: whoever makes a VM knows them", func(ctx context.Context, a *Attacker) error {
			_, err := a.Client.CoreV1().Secrets(a.Namespace).Get(ctx, "agent-one", metav1.GetOptions{})
			return err
		}),
		listed("all nodes, listed", "NSA/CISA: Authentication and authorization", "names, labels and addresses alone", func(ctx context.Context, a *Attacker) error {
			_, err := a.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
			return err
		}),
		listed("the attributes of a PersistentVolume, read by its name", "NSA/CISA: Authentication and authorization", "keep credentials out of CSI attributes", func(ctx context.Context, a *Attacker) error {
			_, err := a.Client.CoreV1().PersistentVolumes().Get(ctx, foreignName+"-"+a.Namespace, metav1.GetOptions{})
			return err
		}),
	}
}

// networkAttacks are attacks with docs/rbac-networks.yaml.
func networkAttacks() []Attack {
	create := func(kind, name string, labels map[string]any, spec map[string]any) TryFunc {
		return func(ctx context.Context, a *Attacker) error {
			names := map[string]string{"ippools": "IPPool", "ipreservations": "IPReservation"}
			object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "crd.projectcalico.org/v1", "kind": names[kind],
				"metadata": map[string]any{"name": name, "labels": labels}, "spec": spec}}
			_, err := a.Objects.Resource(resources[kind]).Create(ctx, object, dryCreate)
			return err
		}
	}
	cpiLabels := map[string]any{manifest.LabelManagedBy: manifest.ManagedBy, manifest.LabelRole: manifest.RoleNetwork}
	return []Attack{
		refused("foreign-networks", "the cluster's address pool, deleted", "", "no Pod of the cluster gets an address", func(ctx context.Context, a *Attacker) error {
			return a.Objects.Resource(resources["ippools"]).Delete(ctx, foreignName+"-"+a.Namespace, dryDelete)
		}),
		refused("foreign-networks", "a foreign reservation of addresses, deleted", "", "addresses that are somebody's for any Pod", func(ctx context.Context, a *Attacker) error {
			return a.Objects.Resource(resources["ipreservations"]).Delete(ctx, foreignName+"-"+a.Namespace, dryDelete)
		}),
		refused("foreign-networks", "address pool without the CPI's labels", "", "what others take for theirs", create("ippools", "pool-two", nil, map[string]any{"cidr": "10.99.0.0/24", "nodeSelector": "!all()"})),
		refused("foreign-networks", "reservation of all addresses, without the CPI's labels", "", "no Pod of the cluster gets an address", create("ipreservations", "reservation-two", nil,
			map[string]any{"reservedCIDRs": []any{"0.0.0.0/0"}})),
		refused("address-pool", "address pool for all Pods of the cluster", "", "addresses of others' networks for all Pods", create("ippools", "pool-two", cpiLabels, map[string]any{"cidr": "10.99.0.0/24", "nodeSelector": "all()"})),
		listed("address pool of any range, for Pods that ask for it", "", "leave docs/rbac-networks.yaml out where no network is `managed`", create("ippools", "pool-two", cpiLabels,
			map[string]any{"cidr": "10.99.0.0/24", "nodeSelector": "!all()"})),
		listed("reservation of all addresses", "", "leave docs/rbac-networks.yaml out where no network is `managed`", create("ipreservations", "reservation-two", cpiLabels,
			map[string]any{"reservedCIDRs": []any{"0.0.0.0/0"}})),
	}
}

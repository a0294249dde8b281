package attacks

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"bosh-kubernetes-cpi/cpi/manifest"
)

// tryPVC returns an attack that creates a modified disk PVC.
func tryPVC(change func(*corev1.PersistentVolumeClaim)) TryFunc {
	return func(ctx context.Context, a *Attacker) error {
		pvc := newPVC(a.Namespace, "disk-two")
		change(pvc.PVC)
		return a.createPVC(ctx, pvc)
	}
}

func pvcAttacks() []Attack {
	const volumes, adminVolume = "RBAC: persistent volumes", "an administrator's PersistentVolume"
	spec := func(rule, property, gain string, change func(*corev1.PersistentVolumeClaimSpec)) Attack {
		return rejected(rule, "disk "+property, volumes, gain, tryPVC(func(c *corev1.PersistentVolumeClaim) { change(&c.Spec) }))
	}
	patch := func(rule, name string, spec map[string]any) Attack {
		return rejected(rule, name, volumes, adminVolume, func(ctx context.Context, a *Attacker) error {
			return a.patchObject(ctx, "persistentvolumeclaims", diskName, map[string]any{"spec": spec})
		})
	}
	return []Attack{
		spec("volume-name", "that names a PersistentVolume", adminVolume, func(c *corev1.PersistentVolumeClaimSpec) { c.VolumeName = othersName }),
		spec("volume-name", "that selects PersistentVolumes by label", adminVolume, func(c *corev1.PersistentVolumeClaimSpec) {
			c.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": othersName}}
		}),
		spec("storage-class", "with the StorageClass of a static PersistentVolume", adminVolume, func(c *corev1.PersistentVolumeClaimSpec) { c.StorageClassName = new("static") }),
		spec("storage-class", "with an empty StorageClass name", "any PersistentVolume without a StorageClass", func(c *corev1.PersistentVolumeClaimSpec) { c.StorageClassName = new("") }),
		spec("storage-class", "without a StorageClass, in a cluster without a default StorageClass", "any PersistentVolume without a StorageClass", func(c *corev1.PersistentVolumeClaimSpec) { c.StorageClassName = nil }).
			withoutDefaultStorageClass(),
		rejected("storage-class", "disk with another StorageClass in its annotation", volumes, adminVolume, tryPVC(func(c *corev1.PersistentVolumeClaim) {
			c.Annotations[corev1.BetaStorageClassAnnotation] = "static"
		})),
		patch("volume-name", "setting the PersistentVolume of an existing disk", map[string]any{"volumeName": othersName}),
		rejected("storage-class", "setting the StorageClass of an existing disk that has none, to match a PersistentVolume", volumes, adminVolume, func(ctx context.Context, a *Attacker) error {
			return a.patchObject(ctx, "persistentvolumeclaims", classlessDisk, map[string]any{"spec": map[string]any{"storageClassName": "static"}})
		}).withoutDefaultStorageClass(),
		spec("data-source", "with another user's disk as its data source", "that disk's data", func(c *corev1.PersistentVolumeClaimSpec) {
			c.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: othersName}
		}),
		spec("data-source", "with a volume populator as its data source", "any data that the populator can read", func(c *corev1.PersistentVolumeClaimSpec) {
			c.DataSourceRef = &corev1.TypedObjectReference{APIGroup: new("example.com"), Kind: "Backup", Name: othersName}
		}),
		possible("disk with any VolumeSnapshot of the namespace as its data source", volumes, dedicatedNamespace, tryPVC(func(c *corev1.PersistentVolumeClaim) {
			c.Spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: new("snapshot.storage.k8s.io"), Kind: "VolumeSnapshot", Name: othersName}
		})),
		possible("disk with a StorageClass in `storage_classes` that has an unbound PersistentVolume", volumes, "list only StorageClasses without manually created PersistentVolumes", tryPVC(func(*corev1.PersistentVolumeClaim) {})),
		possible("disk with annotations for a provisioner", "", "depends on the provisioner", tryPVC(func(c *corev1.PersistentVolumeClaim) { c.Annotations["nfs.io/storage-path"] = "others" })),
		possible("disk with any VolumeAttributesClass", "", "set a ResourceQuota with the scope VolumeAttributesClass", tryPVC(func(c *corev1.PersistentVolumeClaim) {
			c.Spec.VolumeAttributesClassName = new("fast")
		})).sinceMinor(34),
		possible("disks that fill the storage", "NSA/CISA: Resource policies", "set a ResourceQuota", tryPVC(func(*corev1.PersistentVolumeClaim) {})),
		possible("deleting a disk", "", "required by delete_disk; take backups, and use the reclaim policy Retain", func(ctx context.Context, a *Attacker) error {
			return a.Client.CoreV1().PersistentVolumeClaims(a.Namespace).Delete(ctx, diskName, dryDelete)
		}),
	}
}

func snapshotAttacks() []Attack {
	return []Attack{
		rejected("snapshot-source", "VolumeSnapshot that names a VolumeSnapshotContent", "RBAC: persistent volumes", "a snapshot of another namespace", func(ctx context.Context, a *Attacker) error {
			return a.createSnapshot(ctx, map[string]any{"volumeSnapshotContentName": othersName})
		}),
		possible("VolumeSnapshot of another user's disk of the namespace", "", dedicatedNamespace, func(ctx context.Context, a *Attacker) error {
			return a.createSnapshot(ctx, map[string]any{"persistentVolumeClaimName": othersName})
		}),
	}
}

// tryService returns an attack that creates a changed Service of the CPI.
func tryService(change func(*corev1.Service)) TryFunc {
	return func(ctx context.Context, a *Attacker) error {
		created := manifest.Service{Name: "service-two", Type: corev1.ServiceTypeClusterIP, Ports: []corev1.ServicePort{{Port: 80}}}.Object(a.existingVM, "")
		change(created)
		_, err := a.Client.CoreV1().Services(a.Namespace).Create(ctx, created, dryCreate)
		return err
	}
}

func serviceAttacks() []Attack {
	unmanaged := map[string]string{"app": othersName}
	return []Attack{
		rejected("service-selector", "Service that selects another user's Pod", "", "access to a Pod that has no Service", tryService(func(s *corev1.Service) { s.Spec.Selector = unmanaged })),
		rejected("service-selector", "NodePort Service that selects another user's Pod", "NSA/CISA: Network policies", "access to a Pod from outside the cluster", tryService(func(s *corev1.Service) {
			s.Spec.Type, s.Spec.Selector = corev1.ServiceTypeNodePort, unmanaged
		})),
		rejected("service-selector", "Service without a selector", "", "a cluster DNS name that resolves to an external address", tryService(func(s *corev1.Service) { s.Spec.Selector = nil })),
		rejected("service-selector", "changing an existing Service to select another user's Pod", "", "access to a Pod that has no Service", func(ctx context.Context, a *Attacker) error {
			return a.patchObject(ctx, "services", "service-one", map[string]any{"spec": map[string]any{"selector": unmanaged}})
		}),
		rejected("external-ips", "Service with an external IP", "CVE-2020-8554", "other users' traffic to that address", tryService(func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"192.0.2.7"} })),
		rejected("external-ips", "adding an external IP to an existing Service", "CVE-2020-8554", "other users' traffic to that address", func(ctx context.Context, a *Attacker) error {
			return a.patchObject(ctx, "services", "service-one", map[string]any{"spec": map[string]any{"externalIPs": []string{"192.0.2.7"}}})
		}),
		rejected("external-ips", "Service of type ExternalName", "", "clients that trust the cluster's DNS names", tryService(func(s *corev1.Service) {
			s.Spec.Type, s.Spec.ExternalName, s.Spec.Ports = corev1.ServiceTypeExternalName, "example.org", nil
		})),
		possible("Service with an external IP, with `external_ips: \"true\"`", "CVE-2020-8554", "set it only for vip networks; the API server's DenyServiceExternalIPs forbids it", tryService(func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"192.0.2.7"} })).
			withLimit("external_ips", "true"),
		possible("LoadBalancer Service with a requested address", "", "set a ResourceQuota for `services.loadbalancers`; depends on the load balancer", tryService(func(s *corev1.Service) {
			s.Spec.Type, s.Spec.LoadBalancerIP = corev1.ServiceTypeLoadBalancer, "192.0.2.7"
		})),
		possible("LoadBalancer Service with an address requested by annotation", "", "set a ResourceQuota for `services.loadbalancers`; depends on the load balancer", tryService(func(s *corev1.Service) {
			s.Spec.Type = corev1.ServiceTypeLoadBalancer
			s.Annotations["metallb.universe.tf/loadBalancerIPs"] = "192.0.2.7"
		})),
		possible("NodePort Service for a VM", "", "set a ResourceQuota for `services.nodeports`; use a firewall on the nodes", tryService(func(s *corev1.Service) {
			s.Spec.Type = corev1.ServiceTypeNodePort
			s.Spec.Ports = []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(80)}}
		})),
	}
}

func pdbAttacks() []Attack {
	budget := func(selector *metav1.LabelSelector) TryFunc {
		return func(ctx context.Context, a *Attacker) error { return a.createPDB(ctx, selector) }
	}
	const drains = "nodes that cannot be drained"
	return []Attack{
		rejected("budget", "PodDisruptionBudget for all Pods of the namespace", "", drains, budget(&metav1.LabelSelector{})),
		rejected("budget", "PodDisruptionBudget for other users' Pods", "", drains, budget(&metav1.LabelSelector{MatchLabels: map[string]string{"app": othersName}})),
		rejected("budget", "changing an existing PodDisruptionBudget to select all Pods", "", drains, func(ctx context.Context, a *Attacker) error {
			return a.patchObject(ctx, "poddisruptionbudgets", "group-one", map[string]any{"spec": map[string]any{"selector": nil}})
		}),
		possible("PodDisruptionBudget that blocks the draining of BOSH's nodes", "", "delete it; use dedicated nodes", budget(&metav1.LabelSelector{
			MatchLabels: map[string]string{manifest.LabelGroup: "group-one", manifest.LabelRole: manifest.RoleVM}})),
	}
}

// classlessDisk is a disk of the CPI without a StorageClass, as if created in a cluster without a default StorageClass.
const classlessDisk = "disk-unclassed"

// unmanagedObjects returns attacks on other users' objects of each kind that the CPI creates.
func unmanagedObjects() []Attack {
	var attacks []Attack
	for _, target := range []struct{ resourceName, kind, rules string }{ // other rules also cover Pods and PodTemplates
		{"pods", "Pod", "unmanaged|labels"}, {"podtemplates", "PodTemplate", "unmanaged|vm-directory"}, {"secrets", "Secret", "unmanaged"}, {"services", "Service", "unmanaged"},
		{"persistentvolumeclaims", "PersistentVolumeClaim", "unmanaged"}, {"poddisruptionbudgets", "PodDisruptionBudget", "unmanaged"},
		{"volumesnapshots", "VolumeSnapshot", "unmanaged"},
	} {
		attacks = append(attacks, rejected(target.rules, "adding the CPI's labels to another user's "+target.kind, "", "all permissions that the CPI has for its own objects", func(ctx context.Context, a *Attacker) error {
			patch := map[string]any{"metadata": map[string]any{"labels": map[string]any{manifest.LabelManagedBy: manifest.ManagedBy, manifest.LabelRole: manifest.RoleDisk}}}
			return a.patchObject(ctx, target.resourceName, othersName, patch)
		}))
		attacks = append(attacks, rejected("unmanaged", "deleting another user's "+target.kind, "", "loss of another user's service or data", func(ctx context.Context, a *Attacker) error {
			return a.Objects.Resource(resources[target.resourceName]).Namespace(a.Namespace).Delete(ctx, othersName, dryDelete)
		}))
	}
	return attacks
}

func cpiObjects() []Attack {
	secret := func(secretType corev1.SecretType, labels map[string]string) TryFunc {
		return func(ctx context.Context, a *Attacker) error {
			_, err := a.Client.CoreV1().Secrets(a.Namespace).Create(ctx, &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Name: "secret-two", Labels: labels, Annotations: map[string]string{corev1.ServiceAccountNameKey: "default"}},
				Type:       secretType}, dryCreate)
			return err
		}
	}
	cpiLabels := map[string]string{manifest.LabelManagedBy: manifest.ManagedBy, manifest.LabelRole: manifest.RoleVM}
	finalizer := func(resourceName, name, title string) Attack {
		return rejected("finalizers", "adding a finalizer to a "+title, "", "a namespace that cannot be deleted", func(ctx context.Context, a *Attacker) error {
			return a.patchObject(ctx, resourceName, name, map[string]any{"metadata": map[string]any{"finalizers": []string{"example.com/never"}}})
		})
	}
	return []Attack{
		rejected("secret-type", "Secret with a service account's token", "RBAC: token request", "the permissions of any service account of the namespace", secret(corev1.SecretTypeServiceAccountToken, cpiLabels)),
		rejected("object-labels", "Secret without the CPI's labels", "", "an object that other users may mistake for their own", secret(corev1.SecretTypeOpaque, nil)),
		rejected("object-labels", "PodTemplate without the CPI's labels", "", "an object that other users may mistake for their own", func(ctx context.Context, a *Attacker) error {
			podTemplate := newPodTemplate(a.Namespace, "agent-two")
			podTemplate.Labels = nil
			return a.createTemplate(ctx, podTemplate)
		}),
		rejected("object-labels", "removing the CPI's label from a disk", "", "an object that other users may mistake for their own", func(ctx context.Context, a *Attacker) error {
			return a.patchObject(ctx, "persistentvolumeclaims", diskName, map[string]any{"metadata": map[string]any{"labels": map[string]any{manifest.LabelManagedBy: nil}}})
		}),
		rejected("object-labels", "changing the role of a disk", "", "an object that the CPI mistakes for another", func(ctx context.Context, a *Attacker) error {
			return a.patchObject(ctx, "persistentvolumeclaims", diskName, map[string]any{"metadata": map[string]any{"labels": map[string]any{manifest.LabelRole: manifest.RoleEphemeralDisk}}})
		}),
		finalizer("pods", "agent-one", "VM Pod"),
		finalizer("podtemplates", "agent-three", "PodTemplate"),
		finalizer("services", "service-one", "Service"),
		finalizer("secrets", "agent-one", "Secret"),
		finalizer("persistentvolumeclaims", diskName, "disk"),
		rejected("finalizers", "removing the protection of a disk in use", "", "deletion of a mounted volume", func(ctx context.Context, a *Attacker) error {
			return a.patchObject(ctx, "persistentvolumeclaims", diskName, map[string]any{"metadata": map[string]any{"finalizers": nil}})
		}),
		rejected("finalizers", "new Pod with a finalizer", "", "a namespace that cannot be deleted", tryVMPod(func(pod *corev1.Pod) { pod.Finalizers = []string{"example.com/never"} })),
		rejected("finalizers", "Pod that blocks the deletion of another user's owner", "", "an owner that cannot be deleted", tryVMPod(func(pod *corev1.Pod) {
			pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: othersName, UID: "none", BlockOwnerDeletion: new(true)}}
		})),
	}
}

// readAttacks returns attacks that change nothing, or only objects of the CPI.
func readAttacks() []Attack {
	return []Attack{
		possible("reading any Secret of the namespace by name", "RBAC: listing secrets", dedicatedNamespace, func(ctx context.Context, a *Attacker) error {
			_, err := a.Client.CoreV1().Secrets(a.Namespace).Get(ctx, othersName, metav1.GetOptions{})
			return err
		}),
		possible("creating Events with any text for any object of the namespace", "NSA/CISA: Audit logging and threat detection", "rely on the director's tasks and the audit log", func(ctx context.Context, a *Attacker) error {
			_, err := a.Client.CoreV1().Events(a.Namespace).Create(ctx, &corev1.Event{
				ObjectMeta: metav1.ObjectMeta{Name: "event-two"}, Reason: "Healthy", Message: "all is well",
				InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: a.Namespace, Name: othersName}}, dryCreate)
			return err
		}),
		possible("deleting a VM", "", "required by delete_vm", func(ctx context.Context, a *Attacker) error {
			return a.Client.CoreV1().Pods(a.Namespace).Delete(ctx, "agent-one", dryDelete)
		}),
		possible("reading a VM's settings, including its agent's credentials", "RBAC: listing secrets", "unavoidable: the client that creates a VM knows them", func(ctx context.Context, a *Attacker) error {
			_, err := a.Client.CoreV1().Secrets(a.Namespace).Get(ctx, "agent-one", metav1.GetOptions{})
			return err
		}),
		possible("listing all nodes", "NSA/CISA: Authentication and authorization", "shows names, labels and addresses only", func(ctx context.Context, a *Attacker) error {
			_, err := a.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
			return err
		}),
		possible("reading a PersistentVolume's attributes by name", "NSA/CISA: Authentication and authorization", "keep credentials out of CSI attributes", func(ctx context.Context, a *Attacker) error {
			_, err := a.Client.CoreV1().PersistentVolumes().Get(ctx, othersName+"-"+a.Namespace, metav1.GetOptions{})
			return err
		}),
	}
}

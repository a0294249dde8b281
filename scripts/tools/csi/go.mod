// Pins the builds of CSI sidecars for the test cluster; scripts/build-tools builds them. csi-provisioner does not compile with their client-go.
module bosh-kubernetes-cpi/tools/csi

go 1.26.0

require (
	github.com/kubernetes-csi/external-attacher/v4 v4.13.0
	github.com/kubernetes-csi/external-resizer/v2 v2.3.0
	// The module with the snapshots' custom resource definitions.
	github.com/kubernetes-csi/external-snapshotter/client/v8 v8.7.0
	github.com/kubernetes-csi/external-snapshotter/v8 v8.7.0
)

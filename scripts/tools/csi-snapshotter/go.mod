// Pins the build of csi-snapshotter for the test cluster; scripts/build-tools builds it.
module bosh-kubernetes-cpi/tools/csi-snapshotter

go 1.26.0

require github.com/kubernetes-csi/external-snapshotter/v8 v8.7.0

// The module with the snapshots' custom resource definitions.
require github.com/kubernetes-csi/external-snapshotter/client/v8 v8.7.0

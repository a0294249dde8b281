// Pins the build of csi-resizer for the test cluster; scripts/build-tools builds it.
module bosh-kubernetes-cpi/tools/csi-resizer

go 1.26.0

require github.com/kubernetes-csi/external-resizer/v2 v2.3.0

// Pins the build of csi-attacher for the test cluster; scripts/build-tools builds it.
module bosh-kubernetes-cpi/tools/csi-attacher

go 1.26.0

require github.com/kubernetes-csi/external-attacher/v4 v4.13.0

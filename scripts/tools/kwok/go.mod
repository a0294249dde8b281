// Pins the build of kwok for the test cluster; scripts/build-tools builds it.
module bosh-kubernetes-cpi/tools/kwok

go 1.26.0

require sigs.k8s.io/kwok v0.8.0

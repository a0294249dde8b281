// Pins the build of containerd for the test cluster; scripts/build-tools builds it.
module bosh-kubernetes-cpi/tools/containerd

go 1.26.6

require github.com/containerd/containerd/v2 v2.4.2

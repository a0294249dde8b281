// Pins the build of cni-plugins for the test cluster; scripts/build-tools builds it.
module bosh-kubernetes-cpi/tools/cni-plugins

go 1.26.0

require github.com/containernetworking/plugins v1.9.1

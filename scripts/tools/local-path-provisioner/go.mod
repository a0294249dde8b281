// Pins the build of local-path-provisioner for the test cluster; scripts/build-tools builds it.
module bosh-kubernetes-cpi/tools/local-path-provisioner

go 1.26.0

require github.com/rancher/local-path-provisioner v0.0.30

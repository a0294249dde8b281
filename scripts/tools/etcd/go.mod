// Pins the build of etcd for the test cluster; scripts/build-tools builds it.
module bosh-kubernetes-cpi/tools/etcd

go 1.26.0

require go.etcd.io/etcd/server/v3 v3.6.8

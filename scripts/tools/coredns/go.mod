// Pins the build of CoreDNS, the embedded cluster's DNS; scripts/build-tools builds it.
module bosh-kubernetes-cpi/tools/coredns

go 1.26.0

require github.com/coredns/coredns v1.15.0

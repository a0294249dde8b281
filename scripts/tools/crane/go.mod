// Pins the build of crane, which the benchmark of stemcells is compared with; scripts/build-tools builds it.
module bosh-kubernetes-cpi/tools/crane

go 1.26.0

require github.com/google/go-containerregistry v0.22.1

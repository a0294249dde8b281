// Pins the build of golangci-lint, which `make lint` runs; scripts/build-tools builds it.
module bosh-kubernetes-cpi/tools/golangci-lint

go 1.26.0

require github.com/golangci/golangci-lint/v2 v2.15.0

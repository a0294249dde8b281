// Pins the build of Vale, with which `make lint` checks prose; scripts/build-tools builds it. v3.23.0 and later need a version of
// cascadia that the Go module proxy does not have.
module bosh-kubernetes-cpi/tools/vale

go 1.26.0

require github.com/vale-cli/vale/v3 v3.22.0

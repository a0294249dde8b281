// Pins the build of actionlint, with which `make lint` checks .github/workflows; scripts/build-tools builds it.
module bosh-kubernetes-cpi/tools/actionlint

go 1.26.0

require github.com/rhysd/actionlint v1.7.12

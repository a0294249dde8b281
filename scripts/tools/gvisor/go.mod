// Pins the build of gVisor, a sandboxed runtime; scripts/build-tools builds it.
module bosh-kubernetes-cpi/tools/gvisor

go 1.26.0

require gvisor.dev/gvisor v0.0.0-20260905035102-160fafc42237

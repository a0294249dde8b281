// Pins the build of bosh-agent for the test cluster; scripts/build-tools builds it.
module bosh-kubernetes-cpi/tools/bosh-agent

go 1.26.0

require github.com/cloudfoundry/bosh-agent/v2 v2.759.0

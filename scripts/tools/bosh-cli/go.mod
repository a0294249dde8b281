// Pins the build of bosh-cli for the test cluster; scripts/build-tools builds it.
module bosh-kubernetes-cpi/tools/bosh-cli

go 1.26.0

require github.com/cloudfoundry/bosh-cli/v7 v7.8.6

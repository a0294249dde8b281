// Pins the build of nats-server for the tests with a director's message bus; scripts/build-tools builds it.
module bosh-kubernetes-cpi/tools/nats-server

go 1.26.0

require github.com/nats-io/nats-server/v2 v2.11.6

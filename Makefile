# `make demo` and `make test` are all that a newcomer needs; each installs or builds what it wants.

.PHONY: build test integration e2e faults fuzz bench lint demo demo-delete cluster-up cluster-down release clean

# The CPI, the CNI shim and the kubectl plugin, static.
build:
	CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w" -o bin/cpi ./cmd/cpi
	CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w" -o bin/cni-shim ./cmd/cni-shim
	CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w" -o bin/kubectl-bosh ./cmd/kubectl-bosh

# Unit and integration tests, without root and without a cluster; KUBERNETES=1.33 for those with a control plane, of that version, and
# LABEL=each-version for the shortest choice of these.
test:
	KUBERNETES=$(KUBERNETES) LABEL=$(LABEL) scripts/test

# Tests on the real node, as root; LABEL=disks picks a suite.
e2e:
	scripts/e2e "$(LABEL)"

# Each request of each call, disturbed in each way; CELLS=regexp for some.
faults:
	scripts/faults $(if $(CELLS),"$(CELLS)")

# What comes from outside, at random; DURATION=10m for each target.
fuzz:
	scripts/fuzz "$(DURATION)"

# What calls cost, on simulated nodes and, as root, on the real one; QUICK=1 for a small form without root.
bench:
	QUICK=$(QUICK) PARTS=$(PARTS) scripts/bench

lint:
	scripts/lint

# bosh create-env on the embedded cluster, or on the one of KUBECONFIG.
demo:
	scripts/demo create-env

demo-delete:
	scripts/demo delete-env

# The embedded Kubernetes alone; NODES=2 adds a node.
cluster-up:
	scripts/cluster up

cluster-down:
	scripts/cluster down

# The BOSH release's tarball; VERSION=1.2.3 for one of that version, and FINAL=1 for one that is recorded.
release:
	VERSION=$(VERSION) FINAL=$(FINAL) scripts/release

clean:
	rm -rf bin src/kubernetes_cpi src/golang src/toolchains dev_releases .dev_builds

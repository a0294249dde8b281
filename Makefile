# New to this repository? Start with `make demo` and `make test`. All targets install or build their requirements.

.PHONY: build go test integration e2e faults fuzz bench lint demo demo-delete cluster-up cluster-down release publish clean

# Build the CPI, its program for nodes, the CNI shim and the kubectl plugin as static programs.
build: go
	CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w" -o bin/cpi ./cmd/cpi
	CGO_ENABLED=0 GOOS=linux go build -trimpath -buildvcs=false -ldflags "-s -w" -o bin/bosh-node ./cmd/bosh-node
	CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w" -o bin/cni-shim ./cmd/cni-shim
	CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w" -o bin/kubectl-bosh ./cmd/kubectl-bosh

# Fail if Go is missing or too old.
go:
	@bash -c '. scripts/environment; need_go'

# Run unit and integration tests, without root and without a cluster. KUBERNETES=1.35 runs only tests with a control plane, with that
# version.
test:
	KUBERNETES=$(KUBERNETES) scripts/test

# Run tests on the real node, as root. LABEL=disks selects a suite.
e2e:
	scripts/e2e "$(LABEL)"

# Run all fault tests. CASES=REGEXP selects test cases.
faults:
	scripts/faults $(if $(CASES),"$(CASES)")

# Fuzz external input. DURATION=10m is the time for each target.
fuzz:
	scripts/fuzz "$(DURATION)"

# Measure the cost of calls, on simulated nodes and, as root, on the real node. QUICK=1 is a short run without root.
bench:
	QUICK=$(QUICK) PARTS=$(PARTS) scripts/bench

lint:
	scripts/lint

# Run bosh create-env on the embedded cluster, or on the cluster in KUBECONFIG.
demo:
	@scripts/demo create-env

demo-delete:
	@scripts/demo delete-env

# Start or stop the embedded cluster. NODES=2 adds a node.
cluster-up:
	scripts/cluster up

cluster-down:
	scripts/cluster down

# Create the tarball of the BOSH release. VERSION=1.2.3 sets the version, and FINAL=1 records a final release.
release: go
	VERSION=$(VERSION) FINAL=$(FINAL) scripts/release

# Create all files to publish for a version in the directory DIR (default: release): make publish HOME_URL=https://github.com/OWNER/NAME
# VERSION=1.2.3. A home elsewhere also needs IMAGES, the repository of images.
publish: go
	scripts/publish "$(VERSION)" "$(or $(DIR),release)" "$(HOME_URL)"

clean:
	rm -rf bin src/kubernetes_cpi dev_releases .dev_builds

//go:build e2e

package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/test/harness/authority"
	"bosh-kubernetes-cpi/test/harness/director"
	"bosh-kubernetes-cpi/test/harness/embedded"
)

// directorEnv is a testEnv with the message bus and the blobstore of a director for its VMs.
type directorEnv struct {
	*testEnv
	bus      *director.Bus
	blobs    *director.Blobstore
	stemcell string
}

// newDirectorEnv starts the bus and the blobstore on the node's address, because Pods can reach it. stemcell is the environment
// variable with the path of the stemcell's tarball.
func newDirectorEnv(ctx context.Context, stemcell string) *directorEnv {
	GinkgoHelper()
	d := &directorEnv{testEnv: newTestEnv(ctx), stemcell: os.Getenv(stemcell)}
	d.ensureNetClsHierarchy(ctx)
	issuer, err := authority.New()
	Expect(err).NotTo(HaveOccurred())
	address := d.embedded.Nodes[0].Address
	d.bus, err = director.StartBus(ctx, issuer, address, GinkgoT().TempDir())
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(d.bus.Close)
	d.blobs, err = director.StartBlobstore(issuer, address, GinkgoT().TempDir())
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(d.blobs.Close)
	original := d.Director
	DeferCleanup(func() { d.Director = original }) // cleanup of testEnv runs after the new configuration is deleted
	d.Director = d.newDirector(d.kubeconfig, map[string]any{"agent": map[string]any{"mbus": d.bus.URL, "blobstore": d.blobs.Options}})
	return d
}

// ensureNetClsHierarchy mounts the hierarchy net_cls if the node has cgroup v1 without it. Hosts with systemd and cgroup v1 have it,
// and agents with a bus require it; see docs/development/test-stemcell.md. Containers see the hierarchy under the name of its mount
// point.
func (d *directorEnv) ensureNetClsHierarchy(ctx context.Context) {
	GinkgoHelper()
	node := d.embedded.Nodes[0]
	_, err := node.Exec(ctx, "bash", "-ec", `
		[[ $(stat --file-system --format %T /sys/fs/cgroup) != cgroup2fs ]] || exit 0
		exec 9>"$0.lock"
		flock 9 # other test processes do the same
		! grep -q 'cgroup .*net_cls' /proc/self/mounts || exit 0
		mkdir -p "$0"
		mount -t cgroup -o net_cls cgroup "$0"`, filepath.Join(node.Dir, "net_cls"))
	Expect(err).NotTo(HaveOccurred())
}

// The last process removes the hierarchy's cgroups and unmounts it when no VM uses it. If it was unmounted with cgroups in it, it would
// remain in the kernel: /proc/PID/cgroup of every process on the host would list a hierarchy without a mount point, and containers in
// gVisor would not start.
var _ = SynchronizedAfterSuite(func() {}, func(ctx context.Context) {
	node := embedded.NewCluster(os.Getenv("CLUSTER_DIR"), 1).Nodes[0]
	_, err := node.Exec(ctx, "bash", "-ec", `
		mountpoint -q "$0" || exit 0
		for try in 1 2 3 4 5; do
			find "$0" -mindepth 1 -depth -type d -exec rmdir {} +
			umount "$0"
			for wait in {1..20}; do
				grep -q ':net_cls:' /proc/self/cgroup || exit 0
				read -r -t 0.1 <> <(:) || true
			done
			mount -t cgroup -o net_cls cgroup "$0" # the kernel has not freed a removed cgroup yet: unmount it again
		done
		umount "$0"`, filepath.Join(node.Dir, "net_cls"))
	Expect(err).NotTo(HaveOccurred())
})

// createInstance creates a VM with the director's bus and blobstore.
func (d *directorEnv) createInstance(ctx context.Context, disks ...string) *testVM {
	GinkgoHelper()
	return d.createVMFromSpec(ctx, vmSpec{stemcell: d.stemcell, bus: d.bus, disks: disks})
}

// gzipTar returns a gzipped archive of the files. Files with "bin/" in their name, and "packaging", are executable.
func gzipTar(files map[string]string) []byte {
	GinkgoHelper()
	var content bytes.Buffer
	zipped := gzip.NewWriter(&content)
	writer := tar.NewWriter(zipped)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		mode := int64(0o644)
		if strings.Contains(name, "bin/") || name == "packaging" {
			mode = 0o755
		}
		Expect(writer.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: int64(len(files[name]))})).To(Succeed())
		_, err := writer.Write([]byte(files[name]))
		Expect(err).NotTo(HaveOccurred())
	}
	Expect(writer.Close()).To(Succeed())
	Expect(zipped.Close()).To(Succeed())
	return content.Bytes()
}

// extractGzipTar returns the files of a gzipped archive by name.
func extractGzipTar(content []byte) map[string]string {
	GinkgoHelper()
	zipped, err := gzip.NewReader(bytes.NewReader(content))
	Expect(err).NotTo(HaveOccurred())
	files := map[string]string{}
	for reader := tar.NewReader(zipped); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		Expect(err).NotTo(HaveOccurred())
		file, err := io.ReadAll(reader)
		Expect(err).NotTo(HaveOccurred())
		files[strings.TrimPrefix(header.Name, "./")] = string(file)
	}
}

// storeBlob stores content, and returns its ID and digest for messages to agents.
func (d *directorEnv) storeBlob(content []byte) (id, digest string) {
	GinkgoHelper()
	id, digest, err := d.blobs.Put(content)
	Expect(err).NotTo(HaveOccurred())
	return id, digest
}

// compiledPackage is a compiled package in an apply spec.
type compiledPackage struct {
	Blob   string `json:"blobstore_id"`
	Digest string `json:"sha1"`
}

// compileGreeting makes a VM compile the package "greeting", like a compilation VM.
func (d *directorEnv) compileGreeting(ctx context.Context, vm *testVM) compiledPackage {
	GinkgoHelper()
	return d.compilePackage(ctx, vm, "greeting", map[string]string{
		"packaging":      "set -e\ninstall -D -m 0755 greeting/greet ${BOSH_INSTALL_TARGET}/bin/greet\n",
		"greeting/greet": "#!/bin/bash\necho hello from $BASH_SOURCE\n",
		"greeting/other": "data",
	})
}

// compilePackage makes a VM compile a package of these files.
func (d *directorEnv) compilePackage(ctx context.Context, vm *testVM, name string, files map[string]string) compiledPackage {
	GinkgoHelper()
	id, digest := d.storeBlob(gzipTar(files))
	var result struct {
		Result compiledPackage `json:"result"`
	}
	Expect(json.Unmarshal([]byte(vm.callAgent(ctx, "compile_package", id, digest, name, "1", map[string]any{})), &result)).To(Succeed())
	return result.Result
}

// greeterCtl is the control script of the job "greeter". It logs each start and stop.
const greeterCtl = `#!/bin/bash
run=/var/vcap/sys/run/greeter log=/var/vcap/sys/log/greeter/greeter.log
mkdir -p $run
case $1 in
  start)
    /var/vcap/packages/greeting/bin/greet >>$log
    echo start VERSION >>$log
    echo $$ >$run/greeter.pid
    exec sleep infinity ;;
  stop)
    echo stop VERSION >>$log
    kill "$(cat $run/greeter.pid)" ;;
esac
`

// greeterSpec returns the apply spec of an instance with this version of the job "greeter" and the compiled package.
func (d *directorEnv) greeterSpec(version string, greeting compiledPackage, address string) map[string]any {
	GinkgoHelper()
	logScript := func(event string) string {
		return "#!/bin/bash\necho " + event + " " + version + " >>/var/vcap/sys/log/greeter/greeter.log\n"
	}
	return d.applySpec(instanceSpec{deployment: "directed", group: "greeters", id: "greeter-0", job: "greeter", address: address,
		packages: map[string]compiledPackage{"greeting": greeting},
		files: map[string]string{
			"greeter/monit": "check process greeter\n  with pidfile /var/vcap/sys/run/greeter/greeter.pid\n" +
				"  start program \"/var/vcap/jobs/greeter/bin/ctl start\"\n  stop program \"/var/vcap/jobs/greeter/bin/ctl stop\"\n  group vcap\n",
			"greeter/bin/ctl":        strings.ReplaceAll(greeterCtl, "VERSION", version),
			"greeter/bin/pre-start":  logScript("pre-start"),
			"greeter/bin/post-start": logScript("post-start"),
			"greeter/bin/drain":      logScript("drain") + "echo 0\n",
			"greeter/bin/run":        "#!/bin/bash\necho output\necho error >&2\nexit 3\n",
		}})
}

// instanceSpec describes an instance of a deployment, with one job.
type instanceSpec struct {
	deployment, group, id, job, address string
	packages                            map[string]compiledPackage // packages of the job, by name
	files                               map[string]string          // rendered templates of the job, by path
}

// applySpec returns the apply spec that a director sends to the instance's agent.
func (d *directorEnv) applySpec(instance instanceSpec) map[string]any {
	GinkgoHelper()
	blob, digest := d.storeBlob(gzipTar(instance.files))
	packages := map[string]any{}
	for name, pkg := range instance.packages {
		packages[name] = map[string]any{"name": name, "version": "1.1", "blobstore_id": pkg.Blob, "sha1": pkg.Digest}
	}
	return map[string]any{
		"deployment": instance.deployment, "name": instance.group, "id": instance.id, "index": 0, "az": "z1", "configuration_hash": digest,
		"job":                        map[string]any{"name": instance.group, "template": instance.job, "version": "1", "templates": []map[string]any{{"name": instance.job, "version": "1"}}},
		"packages":                   packages,
		"rendered_templates_archive": map[string]any{"blobstore_id": blob, "sha1": digest},
		"networks":                   manualNetwork(instance.address),
		"properties":                 map[string]any{"logging": map[string]any{"max_log_file_size": "1M"}},
	}
}

// update applies a spec to the instance in the director's order: prepare, drain, stop, apply, start.
func (vm *testVM) update(ctx context.Context, spec map[string]any) {
	GinkgoHelper()
	vm.callAgent(ctx, "prepare", spec)
	vm.stop(ctx, spec)
	vm.callAgent(ctx, "update_settings", map[string]any{"disk_associations": []any{}, "trusted_certs": ""})
	vm.callAgent(ctx, "apply", spec)
	vm.callAgent(ctx, "run_script", "pre-start", map[string]any{})
	vm.callAgent(ctx, "start")
	vm.waitForJobState(ctx, "running")
	vm.callAgent(ctx, "run_script", "post-start", map[string]any{})
}

// stop drains and stops the instance's jobs before the spec is applied.
func (vm *testVM) stop(ctx context.Context, spec map[string]any) {
	GinkgoHelper()
	Expect(vm.callAgent(ctx, "drain", "update", spec)).To(Equal("0"))
	vm.callAgent(ctx, "stop")
}

// instanceState is an agent's response to get_state.
type instanceState struct {
	State     string `json:"job_state"`
	Processes []struct {
		Name  string `json:"name"`
		State string `json:"state"`
	} `json:"processes"`
	Vitals map[string]any `json:"vitals"`
}

func (vm *testVM) getState(ctx context.Context) (instanceState, error) {
	var state instanceState
	value, err := vm.agent.Call(ctx, "get_state", "full")
	if err == nil {
		err = json.Unmarshal(value, &state)
	}
	return state, err
}

// waitForJobState waits until the agent reports this job state.
func (vm *testVM) waitForJobState(ctx context.Context, expected string) {
	GinkgoHelper()
	Eventually(func() (string, error) {
		state, err := vm.getState(ctx)
		return state.State, err
	}).WithContext(ctx).Should(Equal(expected), func() string { return vm.run(ctx, "cat /var/vcap/monit/monit.log") })
}

// greeterLog returns the lines of the job's log.
func (vm *testVM) greeterLog(ctx context.Context) []string {
	GinkgoHelper()
	return strings.Split(vm.run(ctx, "cat /var/vcap/sys/log/greeter/greeter.log"), "\n")
}

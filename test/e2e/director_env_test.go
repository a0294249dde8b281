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

	"bosh-kubernetes-cpi/test/director"
	"bosh-kubernetes-cpi/test/embedded"
)

// directorEnv is a world whose machines are on a director's message bus and have a director's blobstore.
type directorEnv struct {
	*testEnv
	bus      *director.Bus
	blobs    *director.Blobstore
	stemcell string
}

// newDirectorEnv starts the bus and the blobstore on the node's own address, which its Pods reach. The
// machines are made of the stemcell whose tarball this variable of the environment names.
func newDirectorEnv(ctx context.Context, stemcell string) *directorEnv {
	GinkgoHelper()
	d := &directorEnv{testEnv: newTestEnv(ctx), stemcell: os.Getenv(stemcell)}
	d.ensureNetClsHierarchy(ctx)
	authority, err := director.NewAuthority()
	Expect(err).NotTo(HaveOccurred())
	address := d.embedded.Nodes[0].Address
	d.bus, err = director.StartBus(ctx, authority, address, GinkgoT().TempDir())
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(d.bus.Close)
	d.blobs, err = director.StartBlobstore(authority, address, GinkgoT().TempDir())
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(d.blobs.Close)
	original := d.Director
	DeferCleanup(func() { d.Director = original }) // what is left is removed when this one's configuration is gone
	d.Director = d.newDirector(d.kubeconfig, map[string]any{"agent": map[string]any{"mbus": d.bus.URL, "blobstore": d.blobs.Options}})
	return d
}

// ensureNetClsHierarchy gives the node the hierarchy net_cls when it has cgroup v1 without it. Hosts with
// systemd and cgroup v1 have it, and agents need it on a bus; see docs/development/test-stemcell.md. Its
// folder's name is what it is called in containers.
func (d *directorEnv) ensureNetClsHierarchy(ctx context.Context) {
	GinkgoHelper()
	node := d.embedded.Nodes[0]
	_, err := node.Exec(ctx, "bash", "-ec", `
		[[ $(stat --file-system --format %T /sys/fs/cgroup) != cgroup2fs ]] || exit 0
		exec 9>"$0.lock"
		flock 9 # another process of these tests may be at it
		! grep -q 'cgroup .*net_cls' /proc/self/mounts || exit 0
		mkdir -p "$0"
		mount -t cgroup -o net_cls cgroup "$0"`, filepath.Join(node.Dir, "net_cls"))
	Expect(err).NotTo(HaveOccurred())
}

// The last process takes the hierarchy away again, once no machine has a part of it. It is the kernel's, and lives
// on with what is in it: every process of the computer would then be said to be in a hierarchy that is mounted nowhere,
// which containers in gVisor do not start with.
var _ = SynchronizedAfterSuite(func() {}, func(ctx context.Context) {
	node := embedded.NewCluster(os.Getenv("CLUSTER_DIR"), 1).Nodes[0]
	_, err := node.Exec(ctx, "bash", "-ec", `
		mountpoint -q "$0" || exit 0
		find "$0" -mindepth 1 -depth -type d -exec rmdir {} +
		umount "$0"`, filepath.Join(node.Dir, "net_cls"))
	Expect(err).NotTo(HaveOccurred())
})

// createInstance makes a VM of the director's.
func (d *directorEnv) createInstance(ctx context.Context, disks ...string) *testVM {
	GinkgoHelper()
	return d.createVMFromSpec(ctx, vmSpec{stemcell: d.stemcell, bus: d.bus, disks: disks})
}

// gzipTar is a gzipped archive of files; the names of programs begin with "bin/" or have it within, or are
// "packaging".
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

// extractGzipTar are the files of a gzipped archive.
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
		text, err := io.ReadAll(reader)
		Expect(err).NotTo(HaveOccurred())
		files[strings.TrimPrefix(header.Name, "./")] = string(text)
	}
}

// storeBlob stores content, and returns how messages name it.
func (d *directorEnv) storeBlob(content []byte) (id, digest string) {
	GinkgoHelper()
	id, digest, err := d.blobs.Put(content)
	Expect(err).NotTo(HaveOccurred())
	return id, digest
}

// compiledPackage is a compiled package as specs of instances have it.
type compiledPackage struct {
	Blob   string `json:"blobstore_id"`
	Digest string `json:"sha1"`
}

// compileGreeting lets a machine compile the package "greeting", as the director does with compilation VMs.
func (d *directorEnv) compileGreeting(ctx context.Context, vm *testVM) compiledPackage {
	GinkgoHelper()
	return d.compilePackage(ctx, vm, "greeting", map[string]string{
		"packaging":         "set -e\ninstall -D -m 0755 greeting/greet ${BOSH_INSTALL_TARGET}/bin/greet\n",
		"greeting/greet":    "#!/bin/bash\necho hello from $BASH_SOURCE\n",
		"greeting/somebody": "else",
	})
}

// compilePackage lets a machine compile a package of these files.
func (d *directorEnv) compilePackage(ctx context.Context, vm *testVM, name string, files map[string]string) compiledPackage {
	GinkgoHelper()
	id, digest := d.storeBlob(gzipTar(files))
	var result struct {
		Result compiledPackage `json:"result"`
	}
	Expect(json.Unmarshal([]byte(vm.callAgent(ctx, "compile_package", id, digest, name, "1", map[string]any{})), &result)).To(Succeed())
	return result.Result
}

// The scripts of the job "greeter". It notes what happens to it in its log.
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

// greeterSpec is that of an instance with the job "greeter" in this version and the compiled package.
func (d *directorEnv) greeterSpec(version string, greeting compiledPackage, address string) map[string]any {
	GinkgoHelper()
	logScript := func(what string) string {
		return "#!/bin/bash\necho " + what + " " + version + " >>/var/vcap/sys/log/greeter/greeter.log\n"
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
			"greeter/bin/run":        "#!/bin/bash\necho an errand\necho of trouble >&2\nexit 3\n",
		}})
}

// instanceSpec is one of a deployment, with one job.
type instanceSpec struct {
	deployment, group, id, job, address string
	packages                            map[string]compiledPackage // that the job needs, by their names
	files                               map[string]string          // of the job, as it is rendered
}

// applySpec is what the director tells the instance's agent.
func (d *directorEnv) applySpec(i instanceSpec) map[string]any {
	GinkgoHelper()
	blob, digest := d.storeBlob(gzipTar(i.files))
	packages := map[string]any{}
	for name, pkg := range i.packages {
		packages[name] = map[string]any{"name": name, "version": "1.1", "blobstore_id": pkg.Blob, "sha1": pkg.Digest}
	}
	return map[string]any{
		"deployment": i.deployment, "name": i.group, "id": i.id, "index": 0, "az": "z1", "configuration_hash": digest,
		"job":                        map[string]any{"name": i.group, "template": i.job, "version": "1", "templates": []map[string]any{{"name": i.job, "version": "1"}}},
		"packages":                   packages,
		"rendered_templates_archive": map[string]any{"blobstore_id": blob, "sha1": digest},
		"networks":                   manualNetwork(i.address),
		"properties":                 map[string]any{"logging": map[string]any{"max_log_file_size": "1M"}},
	}
}

// update gives the instance a spec, as the director does: it prepares, drains and stops, applies, and starts.
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

// stop ends the instance's jobs before it gets this spec.
func (vm *testVM) stop(ctx context.Context, spec map[string]any) {
	GinkgoHelper()
	Expect(vm.callAgent(ctx, "drain", "update", spec)).To(Equal("0"))
	vm.callAgent(ctx, "stop")
}

// state is what the director is told of an instance.
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

// waitForJobState waits until the director would find the instance in this state.
func (vm *testVM) waitForJobState(ctx context.Context, expected string) {
	GinkgoHelper()
	Eventually(func() (string, error) {
		state, err := vm.getState(ctx)
		return state.State, err
	}).WithContext(ctx).Should(Equal(expected), func() string { return vm.run(ctx, "cat /var/vcap/monit/monit.log") })
}

// greeterLog is what happened to the job.
func (vm *testVM) greeterLog(ctx context.Context) []string {
	GinkgoHelper()
	return strings.Split(vm.run(ctx, "cat /var/vcap/sys/log/greeter/greeter.log"), "\n")
}

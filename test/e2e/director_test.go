//go:build e2e

package e2e

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// These specs use a message bus and a blobstore that require certificates and passwords, and send the messages that a director sends to
// agents. An entry's parameter is the environment variable with the path of the stemcell's tarball.
var _ = DescribeTableSubtree("A VM that a director manages", Label("director"), func(stemcell string) {
	It("compiles packages, and stops its jobs before an update", func(ctx context.Context) {
		d := newDirectorEnv(ctx, stemcell)
		vm := d.createInstance(ctx)
		greeting := d.compileGreeting(ctx, vm)
		content, err := d.blobs.Get(greeting.Blob)
		Expect(err).NotTo(HaveOccurred())
		Expect(extractGzipTar(content)).To(HaveKey("bin/greet"))

		By("updating the VM without jobs")
		vm.update(ctx, d.greeterSpec("1", greeting, vm.address))
		first := vm.run(ctx, "cat /var/vcap/sys/run/greeter/greeter.pid")
		Expect(vm.greeterLog(ctx)).To(Equal([]string{"pre-start 1",
			"hello from /var/vcap/packages/greeting/bin/greet", "start 1", "post-start 1"}))

		By("updating the VM again, and stopping the previous job")
		vm.update(ctx, d.greeterSpec("2", greeting, vm.address))
		Expect(vm.run(ctx, "cat /var/vcap/sys/run/greeter/greeter.pid")).NotTo(Equal(first))
		_, err = vm.tryRun(ctx, "kill -0 "+first)
		Expect(err).To(HaveOccurred())
		Expect(vm.greeterLog(ctx)[4:]).To(Equal([]string{"drain 1", "stop 1", "pre-start 2",
			"hello from /var/vcap/packages/greeting/bin/greet", "start 2", "post-start 2"}))

		By("synchronizing the DNS records of other instances")
		id, digest := d.storeBlob([]byte(`{"version":7,"records":[["10.0.0.9","other.example"]]}`))
		Expect(vm.callAgent(ctx, "sync_dns", id, digest, 7)).To(Equal(`"synced"`))
		Expect(vm.run(ctx, "getent hosts other.example")).To(HavePrefix("10.0.0.9"))

		By("stopping the job like bosh stop")
		vm.stop(ctx, d.greeterSpec("2", greeting, vm.address))
		vm.waitForJobState(ctx, "stopped")
		Expect(vm.greeterLog(ctx)[10:]).To(Equal([]string{"drain 2", "stop 2"}))

		By("running a BOSH errand, and fetching logs")
		Expect(vm.callAgent(ctx, "run_errand", "greeter")).To(MatchJSON(`{"stdout":"output\n","stderr":"error\n","exit_code":3}`))
		var logs compiledPackage
		Expect(json.Unmarshal([]byte(vm.callAgent(ctx, "fetch_logs", "job", []string{})), &logs)).To(Succeed())
		content, err = d.blobs.Get(logs.Blob)
		Expect(err).NotTo(HaveOccurred())
		Expect(extractGzipTar(content)["greeter/greeter.log"]).To(ContainSubstring("stop 2\n"))
	}, NodeTimeout(longTest))

	It("sends heartbeats to the health monitor, and an alert when a job dies", func(ctx context.Context) {
		d := newDirectorEnv(ctx, stemcell)
		vm := d.createInstance(ctx)
		vm.update(ctx, d.greeterSpec("1", d.compileGreeting(ctx, vm), vm.address))
		id := strings.TrimPrefix(vm.cid, "agent-")
		alerts, stop, err := d.bus.Listen("hm.agent.alert." + id)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(stop)
		heartbeats, stop, err := d.bus.Listen("hm.agent.heartbeat." + id)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(stop)
		vm.run(ctx, "kill -KILL $(cat /var/vcap/sys/run/greeter/greeter.pid)")
		var title string
		Eventually(func() string {
			select {
			case message := <-alerts:
				var alert struct {
					Title string `json:"title"`
				}
				Expect(json.Unmarshal(message.Data, &alert)).To(Succeed())
				title = alert.Title
			default:
			}
			return title
		}).WithContext(ctx).Should(MatchRegexp(`^greeter \(.*\) - does not exist - restart$`))
		vm.waitForJobState(ctx, "running")
		Eventually(heartbeats).WithContext(ctx).Should(Receive())
	}, NodeTimeout(longTest))

	It("keeps its disk's data when the disk is migrated to a larger disk and attached to another VM", func(ctx context.Context) {
		d := newDirectorEnv(ctx, stemcell)
		vm := d.createInstance(ctx)
		small, large := d.createDisk(ctx, 64, map[string]any{}), d.createDisk(ctx, 128, map[string]any{})
		vm.attach(ctx, small)
		vm.run(ctx, "echo kept >/var/vcap/store/file")
		Expect(vm.callAgent(ctx, "list_disk")).To(MatchJSON(`["` + small + `"]`))

		By("migrating to a larger disk")
		vm.attach(ctx, large)
		vm.callAgent(ctx, "migrate_disk", small, large)
		vm.detach(ctx, small)
		Expect(vm.run(ctx, "cat /var/vcap/store/file")).To(Equal("kept"))
		Expect(vm.callAgent(ctx, "list_disk")).To(MatchJSON(`["` + large + `"]`))
		d.mustCall(ctx, "delete_disk", small)

		By("attaching the disk to another VM")
		vm.detach(ctx, large)
		d.mustCall(ctx, "delete_vm", vm.cid)
		otherVM := d.createInstance(ctx, large)
		otherVM.attach(ctx, large)
		Expect(otherVM.run(ctx, "cat /var/vcap/store/file")).To(Equal("kept"))
	}, NodeTimeout(longTest))

	It("accepts SSH logins of an operator, who can become root, until the director removes the account", func(ctx context.Context) {
		d := newDirectorEnv(ctx, stemcell)
		vm := d.createInstance(ctx)
		public, private := sshKey()
		var login struct {
			Status  string `json:"status"`
			HostKey string `json:"host_public_key"`
		}
		Eventually(func() error { // the VM generates its host keys while the agent starts
			value, err := vm.agent.Call(ctx, "ssh", "setup", map[string]any{"user": "bosh_operator", "public_key": public})
			if err != nil {
				_, _ = vm.agent.Call(ctx, "ssh", "cleanup", map[string]any{"user_regex": "^bosh_operator"})
				return err
			}
			return json.Unmarshal(value, &login)
		}).WithContext(ctx).Should(Succeed())
		Expect(login.Status).To(Equal("success"))
		dir := GinkgoT().TempDir()
		key, knownHosts := filepath.Join(dir, "key"), filepath.Join(dir, "known_hosts")
		Expect(os.WriteFile(key, []byte(private), 0o600)).To(Succeed())
		Expect(os.WriteFile(knownHosts, []byte(vm.address+" "+login.HostKey), 0o600)).To(Succeed())
		ssh := func() (string, error) {
			out, err := exec.CommandContext(ctx, "ssh", "-i", key, "-o", "UserKnownHostsFile="+knownHosts,
				"-o", "HostKeyAlgorithms=rsa-sha2-512", "-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes", "-o", "LogLevel=ERROR",
				"bosh_operator@"+vm.address, "sudo", "id", "-un").CombinedOutput()
			return strings.TrimSpace(string(out)), err
		}
		Eventually(ssh).WithContext(ctx).Should(HaveSuffix("root"))
		vm.callAgent(ctx, "ssh", "cleanup", map[string]any{"user_regex": "^bosh_operator"})
		_, err := ssh()
		Expect(err).To(HaveOccurred())
	}, NodeTimeout(longTest))

	It("reconnects to the bus and starts its jobs after a reboot", func(ctx context.Context) {
		d := newDirectorEnv(ctx, stemcell)
		vm := d.createInstance(ctx)
		vm.update(ctx, d.greeterSpec("1", d.compileGreeting(ctx, vm), vm.address))
		d.mustCall(ctx, "reboot_vm", vm.cid)
		vm.waitForAgent(ctx)
		vm.waitForJobState(ctx, "running")
		log := vm.greeterLog(ctx)
		Expect(log[len(log)-1]).To(Equal("start 1"))
	}, Label("extended"), NodeTimeout(longTest))
},
	Entry("with runit", "E2E_STEMCELL"),
	Entry("with systemd", withSystemd, Label("extended")),
)

// withSystemd is the environment variable with the path of the stemcell with systemd.
const withSystemd = "E2E_STEMCELL_SYSTEMD"

// sshKey generates a key pair in the formats of OpenSSH: a line for authorized_keys, and a private key file.
func sshKey() (public, private string) {
	GinkgoHelper()
	key, secret, err := ed25519.GenerateKey(rand.Reader)
	Expect(err).NotTo(HaveOccurred())
	encodeStrings := func(parts ...[]byte) (encoded []byte) {
		for _, part := range parts {
			encoded = append(binary.BigEndian.AppendUint32(encoded, uint32(len(part))), part...)
		}
		return encoded
	}
	blob := encodeStrings([]byte("ssh-ed25519"), key)
	// See https://github.com/openssh/openssh-portable/blob/master/PROTOCOL.key. There is no cipher and one key. The private section
	// starts with two equal check numbers, and ends with padding.
	inner := append([]byte{0, 0, 0, 1, 0, 0, 0, 1}, encodeStrings([]byte("ssh-ed25519"), key, secret, nil)...)
	for i := byte(1); len(inner)%8 != 0; i++ {
		inner = append(inner, i)
	}
	privateKey := append([]byte("openssh-key-v1\x00"), encodeStrings([]byte("none"), []byte("none"), nil)...)
	privateKey = append(append(privateKey, 0, 0, 0, 1), encodeStrings(blob, inner)...)
	return fmt.Sprintf("ssh-ed25519 %s test", base64.StdEncoding.EncodeToString(blob)),
		string(pem.EncodeToMemory(&pem.Block{Type: "OPENSSH PRIVATE KEY", Bytes: privateKey}))
}

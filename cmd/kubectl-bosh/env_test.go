package main_test

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/gexec"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

var _ = Describe("kubectl bosh env", func() {
	var ws workspace
	BeforeEach(func() {
		for _, name := range []string{"HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy"} {
			GinkgoT().Setenv(name, "")
		}
		ws = newWorkspaceWithCLI()
		Expect(ws.up()).To(gexec.Exit(0))
		ws.write("kubernetes/creds.yml", `{"admin_password": "it's", "director_ssl": {"ca": "-----BEGIN-----\n1\n"}}`)
		DeferCleanup(func() { Expect(ws.run("", "env", "--stop")).To(gexec.Exit(0)) })
	})
	// env returns the variables that env prints with --json.
	env := func(flags ...string) (variables map[string]string) {
		GinkgoHelper()
		session := ws.run("", append([]string{"env", "--json"}, flags...)...)
		Expect(session).To(gexec.Exit(0))
		Expect(json.Unmarshal(session.Out.Contents(), &variables)).To(Succeed())
		return variables
	}

	It("prints the login, and the URL of a proxy that serves the director's namespace until --stop", func() {
		variables := env()
		Expect(variables).To(And(HaveLen(5), HaveKeyWithValue("BOSH_ENVIRONMENT", "10.246.0.60"), HaveKeyWithValue("BOSH_CLIENT", "admin"),
			HaveKeyWithValue("BOSH_CLIENT_SECRET", "it's"), HaveKeyWithValue("BOSH_CA_CERT", "-----BEGIN-----\n1\n")))
		proxy := strings.TrimPrefix(variables["BOSH_ALL_PROXY"], "socks5://")
		Expect(listens(proxy)).To(BeTrue())
		Expect(ws.read("kubernetes/proxy.log")).To(ContainSubstring("serving the VMs and Services of namespace " + ws.namespace))
		Expect(env()).To(Equal(variables), "the same proxy")
		Expect(ws.run("", "env", "--stop")).To(gexec.Exit(0))
		Expect(listens(proxy)).To(BeFalse())
		Expect(env()["BOSH_ALL_PROXY"]).NotTo(BeEmpty(), "another proxy")
	})

	It("prints the secrets in vars.yml, which the BOSH CLI prefers", func() {
		ws.write("kubernetes/vars.yml", ws.read("kubernetes/vars.yml")+"admin_password: rotated\n")
		Expect(env("--no-proxy")).To(HaveKeyWithValue("BOSH_CLIENT_SECRET", "rotated"))
	})

	It("names the variable without which it cannot log in", func() {
		ws.write("kubernetes/creds.yml", `{"director_ssl": {"ca": "-----BEGIN-----\n1\n"}}`)
		session := ws.run("", "env")
		Expect(session).To(gexec.Exit(1))
		Expect(session.Err).To(gbytes.Say("^error: variable admin_password has no value in .*kubernetes/vars.yml and .*kubernetes/creds.yml"))
	})

	It("replaces a proxy that connects to the API server as another user", func() {
		replaced := env()["BOSH_ALL_PROXY"]
		Expect(env("--as", "another", "--as-group", "system:masters")["BOSH_ALL_PROXY"]).NotTo(Equal(replaced))
		Expect(listens(strings.TrimPrefix(replaced, "socks5://"))).To(BeFalse())
	})

	It("replaces a proxy that connects to the API server with other certificate files", func() {
		config, err := clientcmd.LoadFromFile(ws.kubeconfig)
		Expect(err).NotTo(HaveOccurred())
		Expect(clientcmdapi.FlattenConfig(config)).To(Succeed())
		proxies := map[string]bool{}
		for _, name := range []string{"first", "second"} {
			other := config.DeepCopy()
			for _, cluster := range other.Clusters {
				ws.write(name+".crt", string(cluster.CertificateAuthorityData))
				cluster.CertificateAuthority, cluster.CertificateAuthorityData = ws.path(name+".crt"), nil
			}
			ws.kubeconfig = ws.path(name + ".kubeconfig")
			Expect(clientcmd.WriteToFile(*other, ws.kubeconfig)).To(Succeed())
			proxies[env()["BOSH_ALL_PROXY"]] = true
		}
		Expect(proxies).To(HaveLen(2))
	})

	DescribeTable("rejects", func(message string, flags ...string) {
		session := ws.run("", append([]string{"env"}, flags...)...)
		Expect(session).To(gexec.Exit(1))
		Expect(session.Err).To(gbytes.Say("^error: " + message))
	},
		Entry("another namespace than the director's", "directory .*kubernetes belongs to a director in namespace up-", "--namespace", "other"),
		Entry("a directory without a proxy", "directory .*other has no up.yml", "--stop", "--dir", "other"),
		Entry("credentials that the proxy would not have", "--token, --username and --password require --no-proxy", "--token", "secret"),
	)

	It("lets the BOSH CLI connect to the director neither through an HTTP proxy nor directly", func() {
		GinkgoT().Setenv("NO_PROXY", "localhost, 10.246.0.60, 10.246.0.60/30,10.246.0.60:6868")
		Expect(env()).To(HaveKeyWithValue("NO_PROXY", "localhost,10.246.0.62/31,10.246.0.61/32,"+
			"10.246.0.60:6868,10.246.0.60:25555,10.246.0.60:8443,10.246.0.60:8844"))
	})

	It("starts one proxy if several run at the same time", func() {
		var sessions []*gexec.Session
		for range 4 {
			sessions = append(sessions, ws.start("", "env", "--json"))
		}
		for _, session := range sessions {
			Eventually(session).Should(gexec.Exit(0))
			Expect(session.Out.Contents()).To(Equal(sessions[0].Out.Contents()))
		}
	})

	It("stops a proxy after the command that started it was killed", func() {
		lock, err := os.OpenFile(ws.path("kubernetes/proxy.lock"), os.O_RDWR|os.O_CREATE, 0o600)
		Expect(err).NotTo(HaveOccurred())
		Expect(syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)).To(Succeed())
		command := exec.Command(program, "proxy", "--background", ws.path("kubernetes"), "--kubeconfig", ws.kubeconfig, "--namespace", ws.namespace)
		command.ExtraFiles = []*os.File{lock}
		started := startCommand(command)
		Expect(lock.Close()).To(Succeed())
		Expect(listens(strings.TrimPrefix(env()["BOSH_ALL_PROXY"], "socks5://"))).To(BeTrue())
		Expect(ws.run("", "env", "--stop")).To(gexec.Exit(0))
		Eventually(started).Should(gexec.Exit())
	})

	It("does not stop a process that has the ID of an earlier proxy", func() {
		other := startCommand(exec.Command("sleep", "infinity"))
		host, err := os.Hostname()
		Expect(err).NotTo(HaveOccurred())
		ws.write("kubernetes/proxy.yml", fmt.Sprintf("{host: %s, pid: %d, url: socks5://127.0.0.1:1}", host, other.Command.Process.Pid))
		stalled, err := net.Listen("tcp", "127.0.0.1:0")
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(stalled.Close)
		starting := ws.start("", "env", "--server", "https://"+stalled.Addr().String())
		Eventually(func() string { return ws.read("kubernetes/proxy.yml") }).Should(ContainSubstring("pid: 0"))
		stopping := ws.start("", "env", "--stop")
		starting.Kill()
		Eventually(stopping).Should(gexec.Exit(0))
		other.Kill()
		Eventually(other).Should(gexec.Exit(128+int(syscall.SIGKILL)), "it got no other signal before")
	})

	It("fails if the proxy runs on another host, which shares the directory", func() {
		env()
		recorded := ws.read("kubernetes/proxy.yml")
		ws.write("kubernetes/proxy.yml", regexp.MustCompile(`host: .*`).ReplaceAllString(recorded, "host: other"))
		session := ws.run("", "env", "--stop")
		Expect(session).To(gexec.Exit(1))
		Expect(session.Err).To(gbytes.Say("^error: the proxy of directory .*kubernetes runs on host other"))
		ws.write("kubernetes/proxy.yml", recorded)
	})

	It("prints commands that bash runs", func() {
		session := ws.run("", "env", "--no-proxy", "--shell", "bash")
		Expect(session).To(gexec.Exit(0))
		script := string(session.Out.Contents()) + "printenv BOSH_CLIENT_SECRET BOSH_CA_CERT"
		Expect(exec.Command("bash", "-c", script).Output()).To(BeEquivalentTo("it's\n-----BEGIN-----\n1\n\n"))
	})

	It("prints commands of fish", func() {
		session := ws.run("", "env", "--no-proxy", "--shell", "fish")
		Expect(session.Out).To(gbytes.Say(`set -gx BOSH_ENVIRONMENT '10\.246\.0\.60'\n`))
		Expect(session.Out).To(gbytes.Say(`set -gx BOSH_CLIENT_SECRET 'it\\'s'\n`))
	})

	It("prints commands of PowerShell", func() {
		session := ws.run("", "env", "--no-proxy", "--shell", "powershell")
		Expect(session.Out).To(gbytes.Say(`\$env:BOSH_ENVIRONMENT = '10\.246\.0\.60'\n`))
		Expect(session.Out).To(gbytes.Say(`\$env:BOSH_CLIENT_SECRET = 'it''s'\n`))
	})

	It("fails without a director, and starts no proxy", func() {
		session := ws.run("", "env", "--dir", "other")
		Expect(session).To(gexec.Exit(1))
		Expect(session.Err).To(gbytes.Say("^error: directory .*/other has no director yet: create it with `kubectl bosh up`"))
		Expect(ws.path("other")).NotTo(BeADirectory())
	})

	It("fails if the kubeconfig does not select a cluster", func() {
		session := ws.run("", "env", "--context", "none")
		Expect(session).To(gexec.Exit(1))
		Expect(session.Err).To(gbytes.Say(`^error: kubeconfig .*: contexts has no entry "none"`))
	})

	It("stops the proxy when the director is deleted", func() {
		proxy := strings.TrimPrefix(env()["BOSH_ALL_PROXY"], "socks5://")
		Expect(ws.down()).To(gexec.Exit(0))
		Expect(listens(proxy)).To(BeFalse())
		Expect(ws.run("", "env").Err).To(gbytes.Say("has no director yet"))
	})
})

// listens reports whether a program listens at the address.
func listens(address string) bool {
	connection, err := net.Dial("tcp", address)
	return err == nil && connection.Close() == nil
}

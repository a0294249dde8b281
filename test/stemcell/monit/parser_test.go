package monit

import (
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func parse(content string) (*Config, error) {
	path := filepath.Join(GinkgoT().TempDir(), "monitrc")
	Expect(os.WriteFile(path, []byte(content), 0o600)).To(Succeed())
	return ParseFile(path)
}

var _ = Describe("ParseFile", func() {
	It("parses all statements that releases use", func() {
		config, err := parse(`
check process web with pidfile /var/vcap/sys/run/web/web.pid # and a comment
  start program = "/var/vcap/jobs/web/bin/ctl start 'a b'" as uid vcap and gid vcap with timeout 90 seconds
  stop program "/var/vcap/jobs/web/bin/ctl stop"
  group vcap
  depends on db, cache
  if 3 restarts within 5 cycles then timeout
  if totalmem > 1.5 Gb for 10 cycles then restart
  if failed unixsocket /var/vcap/sys/run/web.sock for 3 times within 5 cycles then exec "/bin/alarm now" else if succeeded then alert
check process db matching "db -x"
  mode manual
  every 2 cycles
check process cache with pidfile /c.pid
`)
		Expect(err).NotTo(HaveOccurred())
		web := config.Checks[0]
		Expect(web.Start).To(Equal(&Program{Arguments: []string{"/var/vcap/jobs/web/bin/ctl", "start", "a b"}, UID: "vcap", GID: "vcap",
			Timeout: 90 * time.Second}))
		Expect(web.Stop).To(Equal(&Program{Arguments: []string{"/var/vcap/jobs/web/bin/ctl", "stop"}, Timeout: 30 * time.Second}))
		Expect(web.PidFile).To(Equal("/var/vcap/sys/run/web/web.pid"))
		Expect(web.Group).To(Equal([]string{"vcap"}))
		Expect(web.DependsOn).To(Equal([]string{"db", "cache"}))
		Expect(web.unsupported).To(HaveExactElements("if 3 restarts within 5 cycles", "if totalmem > 1.5 Gb for 10 cycles",
			"if failed unixsocket /var/vcap/sys/run/web.sock for 3 times within 5 cycles"))
		Expect(config.Checks[1].Matching).To(Equal("db -x"))
		Expect(config.Checks[1].Mode).To(Equal("manual"))
	})

	It("parses the control files of the stemcell", func() {
		config := &Config{Users: map[string]string{}}
		Expect(config.include("../rootfs/both/var/vcap/monit/alerts.monitrc")).To(Succeed())
		Expect(config.Mail.Server).To(Equal("localhost:2825"))
		Expect(config.Mail.Recipients).To(Equal([]string{"agent@local"}))
		Expect(config.Mail.Message).To(HavePrefix("Service: $SERVICE\nEvent: $EVENT\nAction: $ACTION\nDate: $DATE\n"))
		control, err := os.ReadFile("../rootfs/both/var/vcap/bosh/etc/monitrc")
		Expect(err).NotTo(HaveOccurred())
		dir := GinkgoT().TempDir()
		Expect(os.WriteFile(filepath.Join(dir, "monit.user"), []byte("vcap:random-password"), 0o600)).To(Succeed())
		config, err = parse(strings.ReplaceAll(string(control), "/var/vcap/monit", dir))
		Expect(err).NotTo(HaveOccurred())
		Expect(config.Address).To(Equal("127.0.0.1:2822"))
		Expect(config.Users).To(Equal(map[string]string{"vcap": "random-password"}))
	})

	DescribeTable("rejects", func(content, message string) {
		_, err := parse(content)
		Expect(err).To(MatchError(ContainSubstring(message)))
	},
		Entry("an unknown statement", "play music\n", "line 1: syntax error 'play'"),
		Entry("an unknown kind of service", "check planet x\n", "syntax error 'planet'"),
		Entry("a process without a pidfile", "check process x\n", "requires a pidfile or a pattern"),
		Entry("an unterminated string", "check process x with pidfile \"/x\n", "is not terminated"),
		Entry("a condition without an action", "check process x with pidfile /x\n if cpu > 5%\n", "has no 'then'"),
		Entry("an unknown action", "check process x with pidfile /x\n if cpu > 5% then dance\n", "syntax error 'dance'"),
		Entry("the same service twice", "check process x with pidfile /x\ncheck process x with pidfile /y\n", "already defined"),
		Entry("a service that depends on an undefined service", "check process x with pidfile /x\n depends on y\n", "y, which is not defined"),
		Entry("services that depend on each other",
			"check process x with pidfile /x\n depends on y\ncheck process y with pidfile /y\n depends on x\n", "depends on itself"),
		Entry("an incomplete statement", "set daemon\n", "unexpected end of file in a statement"),
	)
})

//go:build e2e

package e2e

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// member is an instance of the etcd example.
type member struct {
	*testVM
	id, disk string
}

// etcdCluster is the deployment manifests/examples/etcd.yml, as created by a director.
type etcdCluster struct {
	*exampleDeployment
	members []*member
}

// newEtcdCluster creates VMs for three members, each with a disk, and compiles etcd on the first. The disks have 512 MiB because
// etcd allocates its log in segments of 64 MB.
func newEtcdCluster(ctx context.Context) *etcdCluster {
	GinkgoHelper()
	c := &etcdCluster{exampleDeployment: newExampleDeployment(ctx, "etcd", "etcd")}
	for i := range 3 {
		m := &member{id: fmt.Sprintf("member-%d", i), disk: c.createDisk(ctx, 512, map[string]any{})}
		m.testVM = c.createInstance(ctx, m.disk)
		m.attach(ctx, m.disk)
		c.members = append(c.members, m)
	}
	program, err := exec.LookPath("etcd")
	Expect(err).NotTo(HaveOccurred())
	c.compileProgram(ctx, c.members[0].testVM, program)
	return c
}

// memberSpec returns the apply spec of an instance with one job that is linked to the members.
func (c *etcdCluster) memberSpec(ctx context.Context, job, id, address string) map[string]any {
	GinkgoHelper()
	var instances []any
	for _, m := range c.members {
		instances = append(instances, map[string]any{"id": m.id, "address": m.address})
	}
	return c.exampleSpec(ctx, exampleInstance{job: job, group: "etcd", id: id, address: address,
		links: map[string]any{"etcd": map[string]any{"instances": instances, "properties": map[string]any{"client_port": 2379}}}})
}

// deploy updates the member. The director updates members one after the other.
func (c *etcdCluster) deploy(ctx context.Context, m *member) {
	GinkgoHelper()
	m.update(ctx, c.memberSpec(ctx, "etcd", m.id, m.address))
}

// recreate recreates the member's VM like `bosh recreate`, with its address and disk.
func (c *etcdCluster) recreate(ctx context.Context, m *member) {
	GinkgoHelper()
	m.stop(ctx, c.memberSpec(ctx, "etcd", m.id, m.address))
	m.waitForJobState(ctx, "stopped")
	m.detach(ctx, m.disk)
	c.mustCall(ctx, "delete_vm", m.cid)
	address := m.address
	m.testVM = c.createVMFromSpec(ctx, vmSpec{stemcell: c.stemcell, bus: c.bus, disks: []string{m.disk}, networks: manualNetwork(address)})
	Expect(m.address).To(Equal(address))
	m.attach(ctx, m.disk)
	c.deploy(ctx, m)
}

// callEtcd sends a JSON request to the member's etcd.
func (m *member) callEtcd(ctx context.Context, path string, body map[string]any) (map[string]any, error) {
	raw, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	output, err := m.tryRun(ctx, fmt.Sprintf("curl --silent --show-error --fail --max-time 10 --data '%s' http://127.0.0.1:2379/v3/%s", raw, path))
	if err != nil {
		return nil, err
	}
	var response map[string]any
	err = json.Unmarshal([]byte(output), &response)
	return response, err
}

// memberIDs returns the IDs of the members that this member knows, by name.
func (m *member) memberIDs(ctx context.Context) (map[string]any, error) {
	response, err := m.callEtcd(ctx, "cluster/member/list", map[string]any{})
	if err != nil {
		return nil, err
	}
	ids := map[string]any{}
	for _, entry := range response["members"].([]any) {
		fields := entry.(map[string]any)
		ids[fields["name"].(string)] = fields["ID"]
	}
	return ids, nil
}

func encodeBase64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

// localValue returns the member's local value of the key. It can be older than the value of other members.
func (m *member) localValue(ctx context.Context, key string) (string, error) {
	response, err := m.callEtcd(ctx, "kv/range", map[string]any{"key": encodeBase64(key), "serializable": true})
	if err != nil || response["kvs"] == nil {
		return "", err
	}
	value, err := base64.StdEncoding.DecodeString(response["kvs"].([]any)[0].(map[string]any)["value"].(string))
	return string(value), err
}

var _ = Describe("The etcd example", Label("director", "examples", "extended"), Ordered, func() {
	var (
		c   *etcdCluster
		ids map[string]any
	)
	BeforeAll(func(ctx context.Context) { c = newEtcdCluster(ctx) }, NodeTimeout(2*longTest))

	It("has as many members as its manifest", func() {
		Expect(exampleInstanceCounts("etcd")).To(HaveKeyWithValue("etcd", len(c.members)))
	})

	It("forms one cluster", func(ctx context.Context) {
		for _, m := range c.members {
			c.deploy(ctx, m)
		}
		Eventually(c.members[0].memberIDs).WithContext(ctx).Should(HaveLen(len(c.members)), func() string {
			return c.members[0].run(ctx, "tail -n 20 /var/vcap/sys/log/etcd/etcd.log")
		})
		var err error
		ids, err = c.members[0].memberIDs(ctx)
		Expect(err).NotTo(HaveOccurred())
		put := map[string]any{"key": encodeBase64("kept"), "value": encodeBase64("first value")}
		Eventually(func() error {
			_, err := c.members[0].callEtcd(ctx, "kv/put", put)
			return err
		}).WithContext(ctx).Should(Succeed())
		for _, m := range c.members {
			Eventually(m.localValue).WithContext(ctx).WithArguments("kept").Should(Equal("first value"))
		}
	}, NodeTimeout(longTest))

	It("stores the data of its members on their disks", func(ctx context.Context) {
		for _, m := range c.members {
			Expect(m.run(ctx, "findmnt --noheadings --output SOURCE --target /var/vcap/store/etcd/member")).To(HavePrefix("/dev/bosh/" + m.disk))
		}
	})

	It("serves requests while a member's VM is recreated, and the member keeps its ID and data", func(ctx context.Context) {
		m := c.members[1]
		previousUID := m.pod(ctx).UID
		c.recreate(ctx, m)
		Expect(m.pod(ctx).UID).NotTo(Equal(previousUID))
		Eventually(m.memberIDs).WithContext(ctx).Should(Equal(ids), "the member kept its ID")
		Expect(m.localValue(ctx, "kept")).To(Equal("first value"))
		_, err := c.members[2].callEtcd(ctx, "kv/put", map[string]any{"key": encodeBase64("kept"), "value": encodeBase64("second value")})
		Expect(err).NotTo(HaveOccurred())
		Eventually(m.localValue).WithContext(ctx).WithArguments("kept").Should(Equal("second value"))
	}, NodeTimeout(longTest))

	It("has a BOSH errand that writes a value and finds it on each member", func(ctx context.Context) {
		errand := c.createInstance(ctx)
		errand.update(ctx, c.memberSpec(ctx, "etcd-check", "errand", errand.address))
		var outcome struct {
			Out    string `json:"stdout"`
			Err    string `json:"stderr"`
			Status int    `json:"exit_code"`
		}
		Expect(json.Unmarshal([]byte(errand.callAgent(ctx, "run_errand", "etcd-check")), &outcome)).To(Succeed())
		Expect(outcome.Status).To(BeZero(), outcome.Err)
		responding := strings.Fields(strings.ReplaceAll(outcome.Out, " returned the value", ""))
		addresses := []string{}
		for _, m := range c.members {
			addresses = append(addresses, m.address+":2379")
		}
		Expect(slices.Sorted(slices.Values(responding))).To(Equal(slices.Sorted(slices.Values(addresses))))
		c.mustCall(ctx, "delete_vm", errand.cid)
	}, NodeTimeout(longTest))
})

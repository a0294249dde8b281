package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/test/director"
	"bosh-kubernetes-cpi/test/embedded"
)

const (
	cpiError       = "Bosh::Clouds::CpiError"
	notImplemented = "Bosh::Clouds::NotImplemented"
)

// Every answer is one JSON document with exit status 0 (Director.Raw sees to that), and nothing
// changes in the cluster.
var _ = Describe("Bad input", func() {
	var env testEnv
	BeforeEach(func(ctx context.Context) { env = newTestEnv(ctx) })

	DescribeTable("is answered with an error that says what is wrong",
		func(ctx context.Context, request, kind, words string) {
			response, err := env.CallRaw(ctx, []byte(request))
			Expect(err).NotTo(HaveOccurred())
			Expect(response.Error).NotTo(BeNil())
			Expect(response.Error.Type).To(Equal(kind))
			Expect(response.Error.Message).To(ContainSubstring(words))
			Expect(response.Error.OkToRetry).To(BeFalse())
			Expect(response.Stderr).NotTo(ContainSubstring("panic"))
			Expect(env.listObjects(ctx)).To(BeEmpty())
		},
		Entry("nothing", ``, cpiError, "not one JSON document"),
		Entry("malformed JSON", `{"method":`, cpiError, "not one JSON document"),
		Entry("a list", `[]`, cpiError, "not one JSON document"),
		Entry("a hash without a method", `{}`, cpiError, "method"),
		Entry("a method without arguments", `{"method":"has_vm"}`, cpiError, "arguments"),
		Entry("an unknown method", `{"method":"make_coffee","arguments":[]}`, notImplemented, "make_coffee"),
		Entry("a method of a wrong type", `{"method":7,"arguments":[]}`, cpiError, "method"),
		Entry("too few arguments", `{"method":"attach_disk","arguments":["vm"]}`, cpiError, "2 arguments"),
		Entry("too many arguments", `{"method":"has_vm","arguments":["vm","vm"]}`, cpiError, "1 argument"),
		Entry("a CID that is a number", `{"method":"has_vm","arguments":[7]}`, cpiError, "number"),
		Entry("an empty CID", `{"method":"has_disk","arguments":[""]}`, cpiError, "non-empty"),
		Entry("null for a CID", `{"method":"delete_vm","arguments":[null]}`, cpiError, "non-empty"),
		Entry("a disk size that is text", `{"method":"create_disk","arguments":["big",{},null]}`, cpiError, "string"),
		Entry("a disk size of 0", `{"method":"create_disk","arguments":[0,{},null]}`, cpiError, "greater than 0"),
		Entry("an unknown disk property", `{"method":"create_disk","arguments":[1,{"storage_clas":"x"},null]}`, cpiError, `did you mean "storage_class"?`),
		Entry("an unknown volume mode", `{"method":"create_disk","arguments":[1,{"volume_mode":"Tape"},null]}`, cpiError, "volume_mode"),
		Entry("an unknown filesystem", `{"method":"create_disk","arguments":[1,{"filesystem":"fat"},null]}`, cpiError, "filesystem"),
		Entry("an API version of the future", `{"method":"has_vm","arguments":["vm"],"api_version":7}`, cpiError, "api_version 7"),
		Entry("a context that is a list", `{"method":"has_vm","arguments":["vm"],"context":[]}`, cpiError, "context"),
		Entry("an unknown VM property", createVMRequest(`{"memry":1}`, `{}`), cpiError, `did you mean "memory"?`),
		Entry("an unknown key inside a native structure", createVMRequest(`{"affinity":{"nodeAfinity":{}}}`, `{}`), cpiError, `did you mean "nodeAffinity"?`),
		Entry("memory in bytes, by a forgotten unit", createVMRequest(`{"memory":"1024"}`, `{}`), cpiError, "cloud_properties.memory 1024 is less than 1 MiB"),
		Entry("memory of a wrong type", createVMRequest(`{"memory":[]}`, `{}`), cpiError, "memory [] is neither a whole number"),
		Entry("shared memory of 0", createVMRequest(`{"shared_memory":0}`, `{}`), cpiError, "cloud_properties.shared_memory must be greater than 0"),
		Entry("memory below 0", createVMRequest(`{"memory":-1}`, `{}`), cpiError, "memory must be greater than 0"),
		Entry("an unknown way to attach", createDiskRequest(`{"attach":"mount"}`), cpiError, `cloud_properties.attach "mount" is neither device nor bind`),
		Entry("a Block claim as a directory", createDiskRequest(`{"attach":"bind","volume_mode":"Block"}`), cpiError, "cloud_properties.volume_mode Block cannot be attached as a directory"),
		Entry("a filesystem for a directory", createDiskRequest(`{"attach":"bind","filesystem":"xfs"}`), cpiError, "cloud_properties.filesystem xfs has no meaning with attach: bind"),
		Entry("a Block claim whose room is to be reserved", createDiskRequest(`{"volume_mode":"Block","reserve":true}`), cpiError, "cloud_properties.reserve has a meaning for"),
		Entry("a directory whose room is to be reserved", createDiskRequest(`{"attach":"bind","reserve":true}`), cpiError, "cloud_properties.reserve has a meaning for"),
		Entry("a label that Kubernetes refuses", createVMRequest(`{"labels":{"a":"b c"}}`, `{}`), cpiError, "labels.a"),
		Entry("a Service without ports", createVMRequest(`{"services":[{}]}`, `{}`), cpiError, `cloud_properties.services[0].ports is missing`),
		Entry("a Service of a type that is not supported", createVMRequest(`{"services":[{"type":"ExternalName","ports":[1]}]}`, `{}`), cpiError, `services[0].type "ExternalName" is none of`),
		Entry("a Service's unknown key", createVMRequest(`{"services":[{"port":[1]}]}`, `{}`), cpiError, `did you mean "ports"?`),
		Entry("a Service's name that no Service can have", createVMRequest(`{"services":[{"name":"7up","ports":[1]}]}`, `{}`), cpiError, `services[0].name`),
		Entry("two Services of one name", createVMRequest(`{"services":[{"name":"a","ports":[1]},{"name":"a","ports":[1]}]}`, `{}`), cpiError, `services[0] and cloud_properties.services[1] are both named a`),
		Entry("a port out of range", createVMRequest(`{"services":[{"ports":[80,70000]}]}`, `{}`), cpiError, `services[0].ports[1].port 70000`),
		Entry("a port's unknown key", createVMRequest(`{"services":[{"ports":[{"prot":1}]}]}`, `{}`), cpiError, `did you mean "port"?`),
		Entry("a port's unknown protocol", createVMRequest(`{"services":[{"ports":[{"port":1,"protocol":"tcp"}]}]}`, `{}`), cpiError, `ports[0].protocol "tcp" is none of`),
		Entry("a port given twice", createVMRequest(`{"services":[{"ports":[1,{"port":1,"name":"x"}]}]}`, `{}`), cpiError, `ports[0] and [1] are the same port, 1/TCP`),
		Entry("a node port without the type", createVMRequest(`{"services":[{"ports":[{"port":1,"node_port":30000}]}]}`, `{}`), cpiError, `ports[0].node_port needs`),
		Entry("a headless Service of another type", createVMRequest(`{"services":[{"type":"NodePort","headless":true,"ports":[1]}]}`, `{}`), cpiError, `services[0].headless`),
		Entry("a cluster IP that is none", createVMRequest(`{"services":[{"cluster_ip":"here","ports":[1]}]}`, `{}`), cpiError, `services[0].cluster_ip "here"`),
		Entry("an external IP that is none", createVMRequest(`{"services":[{"external_ips":["here"],"ports":[1]}]}`, `{}`), cpiError, `services[0].external_ips[0]`),
		Entry("source ranges without a load balancer", createVMRequest(`{"services":[{"source_ranges":["10.0.0.0/8"],"ports":[1]}]}`, `{}`), cpiError, `services[0].source_ranges needs`),
		Entry("a source range that is no network", createVMRequest(`{"services":[{"type":"LoadBalancer","source_ranges":["x"],"ports":[1]}]}`, `{}`), cpiError, `services[0].source_ranges[0]`),
		Entry("a policy for traffic from outside that is none", createVMRequest(`{"services":[{"type":"NodePort","external_traffic_policy":"Near","ports":[1]}]}`, `{}`), cpiError, `services[0].external_traffic_policy "Near" is none of Cluster, Local`),
		Entry("a policy for traffic that cannot come", createVMRequest(`{"services":[{"external_traffic_policy":"Local","ports":[1]}]}`, `{}`), cpiError, `services[0].external_traffic_policy needs`),
		Entry("an affinity that is none", createVMRequest(`{"services":[{"session_affinity":"Cookie","ports":[1]}]}`, `{}`), cpiError, `services[0].session_affinity "Cookie" is none of ClientIP, None`),
		Entry("an affinity to an address that is not there", createVMRequest(`{"services":[{"headless":true,"session_affinity":"ClientIP"}]}`, `{}`), cpiError, `services[0].session_affinity does not go with headless`),
		Entry("a policy of a vip network that is none", createVMRequest(`{}`, `{"v":{"type":"vip","ip":"192.0.2.7","cloud_properties":{"ports":[1],"external_traffic_policy":"Near"}}}`), cpiError, `external_traffic_policy "Near"`),
		Entry("a probe with a key that is none", createVMRequest(`{"readiness_probe":{"httpGet":{"prot":80}}}`, `{}`), cpiError, `unknown field "readiness_probe.httpGet.prot"`),
		Entry("a Service to keep without a name", createVMRequest(`{"services":[{"keep":true,"ports":[1]}]}`, `{}`), cpiError, `services[0].keep needs`),
		Entry("a label of a Service that is the CPI's own", createVMRequest(`{"services":[{"labels":{"bosh.cloudfoundry.org/vm":"x"},"ports":[1]}]}`, `{}`), cpiError, `services[0].labels.bosh.cloudfoundry.org/vm`),
		Entry("a label that belongs to a Service", createVMRequest(`{"labels":{"service.bosh.cloudfoundry.org/x":"true"}}`, `{}`), cpiError, `is the CPI's own label`),
		Entry("a vip network without an address", createVMRequest(`{}`, `{"v":{"type":"vip"}}`), cpiError, `networks.v.ip`),
		Entry("a vip network without ports", createVMRequest(`{}`, `{"v":{"type":"vip","ip":"192.0.2.1"}}`), cpiError, `networks.v.cloud_properties.ports is missing`),
		Entry("a vip network's unknown key", createVMRequest(`{}`, `{"v":{"type":"vip","ip":"192.0.2.1","cloud_properties":{"prts":[1]}}}`), cpiError, `did you mean "ports"?`),
		Entry("a vip network's unknown Service type", createVMRequest(`{}`, `{"v":{"type":"vip","ip":"192.0.2.1","cloud_properties":{"service_type":"NodePort"}}}`), cpiError, `networks.v.cloud_properties.service_type`),
		Entry("a disruption budget of both kinds", createVMRequest(`{"disruption_budget":{"min_available":1,"max_unavailable":1}}`, `{}`), cpiError, `either min_available or max_unavailable`),
		Entry("a disruption budget that forbids every drain", createVMRequest(`{"disruption_budget":{"max_unavailable":0}}`, `{}`), cpiError, `disruption_budget.max_unavailable`),
		Entry("a disruption budget of a percentage", createVMRequest(`{"disruption_budget":{"max_unavailable":"50%"}}`, `{}`), cpiError, `disruption_budget.max_unavailable: a string`),
		Entry("a disruption budget without a group", createVMRequest(`{"disruption_budget":{"max_unavailable":1}}`, `{}`), cpiError, `env.bosh.group`),
		Entry("a manual network without an address", createVMRequest(`{}`, `{"n":{"type":"manual"}}`), cpiError, "networks.n.ip"),
		Entry("a network of an unknown type", createVMRequest(`{}`, `{"n":{"type":"magic"}}`), cpiError, "networks.n.type"),
		Entry("two addresses of one family", createVMRequest(`{}`, `{"n":{"type":"manual","ip":"10.0.0.1"},"m":{"type":"manual","ip":"10.0.0.2"}}`), "Bosh::Clouds::NotSupported", "m and n"),
		Entry("an agent id that no Pod's name can hold", `{"method":"create_vm","arguments":["A_b","i:1",{},{},[],{}],"api_version":2}`, cpiError, "agent_id"),
		Entry("a stemcell that is no image", `{"method":"create_vm","arguments":["a","no image",{},{},[],{}],"api_version":2}`, "Bosh::Clouds::StemcellNotFound", "no image"),
		Entry("a stemcell with a malformed reference", `{"method":"create_stemcell","arguments":["i",{"image":"UPPER CASE"}]}`, cpiError, "cloud_properties.image"),
		Entry("vm_resources without a CPU", `{"method":"calculate_vm_cloud_properties","arguments":[{"ram":1}]}`, cpiError, "cpu"),
	)

	It("of a megabyte of garbage is answered too", func(ctx context.Context) {
		garbage := make([]byte, 1<<20)
		source := rand.NewChaCha8([32]byte{1})
		_, _ = source.Read(garbage)
		response, err := env.CallRaw(ctx, garbage)
		Expect(err).NotTo(HaveOccurred())
		Expect(response.Error.Type).To(Equal(cpiError))
	})
})

func createDiskRequest(properties string) string {
	return fmt.Sprintf(`{"method":"create_disk","arguments":[64,%s,null],"api_version":2}`, properties)
}

func createVMRequest(properties, networks string) string {
	return fmt.Sprintf(`{"method":"create_vm","arguments":["a","i:1",%s,%s,[],{}],"api_version":2}`, properties, networks)
}

var _ = Describe("A configuration", func() {
	config := func(content string) *director.Director {
		path := filepath.Join(GinkgoT().TempDir(), "cpi.json")
		Expect(os.WriteFile(path, []byte(content), 0o600)).To(Succeed())
		return &director.Director{CPI: cpiPath, Config: path}
	}

	DescribeTable("that is broken is named in every answer",
		func(ctx context.Context, content, words string) {
			for _, method := range []string{"info", "has_vm"} {
				arguments := map[string][]any{"info": {}, "has_vm": {"vm"}}[method]
				response, err := config(content).Call(ctx, method, arguments...)
				Expect(err).NotTo(HaveOccurred())
				Expect(response.Error).NotTo(BeNil())
				Expect(response.Error.Type).To(Equal(cpiError))
				Expect(response.Error.Message).To(ContainSubstring(words))
			}
		},
		Entry("no JSON", `kubernetes: {}`, "cpi.json"),
		Entry("an unknown key", `{"agent":{"mbus":"nats://a:1"},"kubernetis":{}}`, `did you mean "kubernetes"?`),
		Entry("an unknown key inside", `{"agent":{"mbus":"nats://a:1","mbuss":""}}`, `did you mean "mbus"?`),
		Entry("a missing key", `{}`, "agent.mbus is missing"),
		Entry("a value of a wrong type", `{"agent":{"mbus":1}}`, "agent.mbus"),
		Entry("two kubeconfigs", `{"agent":{"mbus":"nats://a:1"},"kubernetes":{"kubeconfig":"x","kubeconfig_path":"y"}}`, "kubeconfig_path"),
		Entry("a timeout without a unit", `{"agent":{"mbus":"nats://a:1"},"timeouts":{"create_vm":"10"}}`, "duration"),
		Entry("an unknown log level", `{"agent":{"mbus":"nats://a:1"},"log":{"level":"loud"}}`, "log.level"),
	)

	It("that is not there is named", func(ctx context.Context) {
		response, err := (&director.Director{CPI: cpiPath, Config: "/no/such/cpi.json"}).Call(ctx, "has_vm", "vm")
		Expect(err).NotTo(HaveOccurred())
		Expect(response.Error.Message).To(ContainSubstring("/no/such/cpi.json"))
	})

	It("whose API server does not answer gives an error that says so, and info is answered even so", func(ctx context.Context) {
		port, err := embedded.FreePort()
		Expect(err).NotTo(HaveOccurred())
		kubeconfig := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"c","clusters":[{"name":"c","cluster":{"server":"http://127.0.0.1:%d"}}],"contexts":[{"name":"c","context":{"cluster":"c","user":"c"}}],"users":[{"name":"c","user":{}}]}`, port)
		path := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
		Expect(os.WriteFile(path, []byte(kubeconfig), 0o600)).To(Succeed())
		d := config(fmt.Sprintf(`{"agent":{"mbus":"nats://a:1"},"kubernetes":{"kubeconfig_path":%q},"timeouts":{"request":"100ms"}}`, path))
		response, err := d.Call(ctx, "has_vm", "vm")
		Expect(err).NotTo(HaveOccurred())
		Expect(response.Error.Type).To(Equal("Bosh::Clouds::CloudError"))
		Expect(response.Error.Message).To(ContainSubstring("API server cannot be reached"))
		response, err = d.Call(ctx, "info")
		Expect(err).NotTo(HaveOccurred())
		Expect(response.Error).To(BeNil())
	})

	It("can be replaced by the properties of a cpi-config", func(ctx context.Context) {
		env := newTestEnv(ctx)
		raw, err := os.ReadFile(filepath.Join(sharedDir, env.namespace+".kubeconfig"))
		Expect(err).NotTo(HaveOccurred())
		d := config(`{"agent":{"mbus":"nats://a:1"},"kubernetes":{"kubeconfig_path":"/no/such/file"}}`)
		response, err := d.CallRaw(ctx, fmt.Appendf(nil, `{"method":"has_vm","arguments":["vm"],"context":{"director_uuid":"d","kubernetes":{"kubeconfig":%q}}}`, raw))
		Expect(err).NotTo(HaveOccurred())
		Expect(response.Error).To(BeNil())
	})

	It("runs no program for a kubeconfig of a cpi-config, unless cpi.json names it", func(ctx context.Context) {
		ran := filepath.Join(GinkgoT().TempDir(), "ran")
		kubeconfig := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"c","clusters":[{"name":"c","cluster":{"server":"https://127.0.0.1:1"}}],
			"contexts":[{"name":"c","context":{"cluster":"c","user":"u","namespace":"n"}}],"users":[{"name":"u","user":{"exec":{
			"apiVersion":"client.authentication.k8s.io/v1","command":"touch","args":[%q],"interactiveMode":"Never"}}}]}`, ran)
		request := fmt.Appendf(nil, `{"method":"has_vm","arguments":["vm"],"context":{"kubernetes":{"kubeconfig":%q}}}`, kubeconfig)
		answer := func(allowed string) *director.Error {
			response, err := config(`{"agent":{"mbus":"nats://a:1"},"timeouts":{"request":"100ms"}`+allowed+`}`).CallRaw(ctx, request)
			Expect(err).NotTo(HaveOccurred())
			Expect(response.Error).NotTo(BeNil())
			return response.Error
		}
		Expect(answer("")).To(HaveField("Message", ContainSubstring(`users[u].user.exec may not run "touch"`)))
		Expect(ran).NotTo(BeAnExistingFile())
		Expect(answer(`,"cpi_config":{"commands":["touch"]}`)).To(HaveField("Message", Not(ContainSubstring("may not run"))))
		Expect(ran).To(BeAnExistingFile())
	})
})

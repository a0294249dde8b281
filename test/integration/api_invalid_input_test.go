package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/test/harness/director"
)

const (
	cpiError       = "Bosh::Clouds::CpiError"
	notImplemented = "Bosh::Clouds::NotImplemented"
)

// Director.CallRaw checks that each response is one JSON document, and that the exit status is 0. Nothing changes in the cluster.
var _ = Describe("Invalid input", func() {
	var env testEnv
	BeforeEach(func(ctx context.Context) { env = newTestEnv(ctx) })

	DescribeTable("leads to an error that names the cause:",
		func(ctx context.Context, request, wantType, message string) {
			response, err := env.CallRaw(ctx, []byte(request))
			Expect(err).NotTo(HaveOccurred())
			Expect(response.Error).NotTo(BeNil())
			Expect(response.Error.Type).To(Equal(wantType))
			Expect(response.Error.Message).To(ContainSubstring(message))
			Expect(response.Error.OkToRetry).To(BeFalse())
			Expect(response.Stderr).NotTo(ContainSubstring("panic"))
			Expect(env.listObjects(ctx)).To(BeEmpty())
		},
		Entry("no input", ``, cpiError, "request: is empty"),
		Entry("malformed JSON", `{"method":`, cpiError, "request: is not valid JSON"),
		Entry("an array", `[]`, cpiError, "request must be a hash, not a list"),
		Entry("an object without a method", `{}`, cpiError, "method"),
		Entry("a method without arguments", `{"method":"has_vm"}`, cpiError, "arguments"),
		Entry("an unknown method", `{"method":"make_coffee","arguments":[]}`, notImplemented, "make_coffee"),
		Entry("a method of the wrong type", `{"method":7,"arguments":[]}`, cpiError, "method"),
		Entry("too few arguments", `{"method":"attach_disk","arguments":["vm"],"api_version":2}`, cpiError, "2 arguments"),
		Entry("too many arguments", `{"method":"has_vm","arguments":["vm","vm"],"api_version":2}`, cpiError, "1 argument"),
		Entry("a CID that is a number", `{"method":"has_vm","arguments":[7],"api_version":2}`, cpiError, "number"),
		Entry("an empty CID", `{"method":"has_disk","arguments":[""],"api_version":2}`, cpiError, "argument 1 is an empty string"),
		Entry("null as a CID", `{"method":"delete_vm","arguments":[null],"api_version":2}`, cpiError, "argument 1 must be a string, not null"),
		Entry("a disk size that is a string", `{"method":"create_disk","arguments":["big",{},null],"api_version":2}`, cpiError, "string"),
		Entry("a disk size of 0", `{"method":"create_disk","arguments":[0,{},null],"api_version":2}`, cpiError, "disk size 0 MiB is not valid; use 1 to"),
		Entry("an unknown disk property", `{"method":"create_disk","arguments":[1,{"storage_clas":"x"},null],"api_version":2}`, cpiError, `did you mean "storage_class"?`),
		Entry("an unknown volume mode", `{"method":"create_disk","arguments":[1,{"volume_mode":"Tape"},null],"api_version":2}`, cpiError, "volume_mode"),
		Entry("an unknown filesystem", `{"method":"create_disk","arguments":[1,{"filesystem":"fat"},null],"api_version":2}`, cpiError, "filesystem"),
		Entry("a context that is an array", `{"method":"has_vm","arguments":["vm"],"context":[],"api_version":2}`, cpiError, "context"),
		Entry("an unknown VM property", createVMRequest(`{"memry":1}`, `{}`), cpiError, `did you mean "memory"?`),
		Entry("an unknown key inside a structure of Kubernetes", createVMRequest(`{"affinity":{"nodeAfinity":{}}}`, `{}`), cpiError, `did you mean "nodeAffinity"?`),
		Entry("memory without a unit in a string, which means bytes", createVMRequest(`{"memory":"1024"}`, `{}`), cpiError, "cloud_properties.memory 1024 is less than 1 MiB"),
		Entry("memory of the wrong type", createVMRequest(`{"memory":[]}`, `{}`), cpiError, "cloud_properties.memory must be a number, or a quantity"),
		Entry("a grace period without time for the shutdown", createVMRequest(`{"termination_grace_period":30}`, `{}`), cpiError, "cloud_properties.termination_grace_period 30 is not valid; use more than 30 seconds"),
		Entry("shared memory of 0", createVMRequest(`{"shared_memory":0}`, `{}`), cpiError, "cloud_properties.shared_memory must be greater than 0"),
		Entry("negative memory", createVMRequest(`{"memory":-1}`, `{}`), cpiError, "memory must be greater than 0"),
		Entry("preallocate with a block volume", createDiskRequest(`{"volume_mode":"Block","preallocate":true}`), cpiError, "cloud_properties.preallocate applies only to disks that are image files"),
		Entry("an invalid label", createVMRequest(`{"labels":{"a":"b c"}}`, `{}`), cpiError, "labels.a"),
		Entry("a Service without ports", createVMRequest(`{"services":[{}]}`, `{}`), cpiError, `cloud_properties.services[0].ports is missing`),
		Entry("a Service of an unsupported type", createVMRequest(`{"services":[{"type":"ExternalName","ports":[1]}]}`, `{}`), cpiError, `services[0].type "ExternalName" is not valid`),
		Entry("an unknown key of a Service", createVMRequest(`{"services":[{"port":[1]}]}`, `{}`), cpiError, `did you mean "ports"?`),
		Entry("an invalid name of a Service", createVMRequest(`{"services":[{"name":"7up","ports":[1]}]}`, `{}`), cpiError, `services[0].name`),
		Entry("two Services with the same name", createVMRequest(`{"services":[{"name":"a","ports":[1]},{"name":"a","ports":[1]}]}`, `{}`), cpiError, `services[0] and cloud_properties.services[1] have the same name, a`),
		Entry("a port out of range", createVMRequest(`{"services":[{"ports":[80,70000]}]}`, `{}`), cpiError, `cloud_properties.services[0].ports[1] is not valid; use a port`),
		Entry("an unknown key of a port", createVMRequest(`{"services":[{"ports":[{"prot":1}]}]}`, `{}`), cpiError, `did you mean "port"?`),
		Entry("an unknown protocol of a port", createVMRequest(`{"services":[{"ports":[{"port":1,"protocol":"tcp"}]}]}`, `{}`), cpiError, `ports[0].protocol "tcp" is not valid`),
		Entry("a duplicate port", createVMRequest(`{"services":[{"ports":[1,{"port":1,"name":"x"}]}]}`, `{}`), cpiError, `ports[0] and [1] are the same port, 1/TCP`),
		Entry("a node port of a Service without one", createVMRequest(`{"services":[{"ports":[{"port":1,"node_port":30000}]}]}`, `{}`), cpiError, `ports[0].node_port requires`),
		Entry("a headless Service of type NodePort", createVMRequest(`{"services":[{"type":"NodePort","headless":true,"ports":[1]}]}`, `{}`), cpiError, `services[0].headless`),
		Entry("an invalid cluster IP", createVMRequest(`{"services":[{"cluster_ip":"here","ports":[1]}]}`, `{}`), cpiError, `services[0].cluster_ip "here"`),
		Entry("an invalid external IP", createVMRequest(`{"services":[{"external_ips":["here"],"ports":[1]}]}`, `{}`), cpiError, `services[0].external_ips[0]`),
		Entry("source ranges without a load balancer", createVMRequest(`{"services":[{"source_ranges":["10.0.0.0/8"],"ports":[1]}]}`, `{}`), cpiError, `services[0].source_ranges requires`),
		Entry("an invalid source range", createVMRequest(`{"services":[{"type":"LoadBalancer","source_ranges":["x"],"ports":[1]}]}`, `{}`), cpiError, `services[0].source_ranges[0]`),
		Entry("an unknown external traffic policy", createVMRequest(`{"services":[{"type":"NodePort","external_traffic_policy":"Near","ports":[1]}]}`, `{}`), cpiError, `services[0].external_traffic_policy "Near" is not valid; use Cluster or Local`),
		Entry("an external traffic policy without external traffic", createVMRequest(`{"services":[{"external_traffic_policy":"Local","ports":[1]}]}`, `{}`), cpiError, `services[0].external_traffic_policy requires`),
		Entry("an unknown session affinity", createVMRequest(`{"services":[{"session_affinity":"Cookie","ports":[1]}]}`, `{}`), cpiError, `services[0].session_affinity "Cookie" is not valid; use ClientIP or None`),
		Entry("a session affinity of a headless Service", createVMRequest(`{"services":[{"headless":true,"session_affinity":"ClientIP"}]}`, `{}`), cpiError, `services[0].session_affinity and headless are mutually exclusive`),
		Entry("an unknown external traffic policy of a vip network", createVMRequest(`{}`, `{"v":{"type":"vip","ip":"192.0.2.7","cloud_properties":{"ports":[1],"external_traffic_policy":"Near"}}}`), cpiError, `external_traffic_policy "Near"`),
		Entry("an unknown key of a probe", createVMRequest(`{"readiness_probe":{"httpGet":{"prot":80}}}`, `{}`), cpiError, `cloud_properties.readiness_probe.httpGet: unknown key "prot"`),
		Entry("keep without a name of the Service", createVMRequest(`{"services":[{"keep":true,"ports":[1]}]}`, `{}`), cpiError, `services[0].keep requires`),
		Entry("a reserved label on a Service", createVMRequest(`{"services":[{"labels":{"bosh.cloudfoundry.org/vm":"x"},"ports":[1]}]}`, `{}`), cpiError, `services[0].labels.bosh.cloudfoundry.org/vm`),
		Entry("a reserved label on a VM", createVMRequest(`{"labels":{"service.bosh.cloudfoundry.org/x":"true"}}`, `{}`), cpiError, `is reserved for the CPI`),
		Entry("a vip network without an address", createVMRequest(`{}`, `{"v":{"type":"vip"}}`), cpiError, `networks.v.ip`),
		Entry("a vip network without ports", createVMRequest(`{}`, `{"v":{"type":"vip","ip":"192.0.2.1"}}`), cpiError, `networks.v.cloud_properties.ports is missing`),
		Entry("an unknown key of a vip network", createVMRequest(`{}`, `{"v":{"type":"vip","ip":"192.0.2.1","cloud_properties":{"prts":[1]}}}`), cpiError, `did you mean "ports"?`),
		Entry("an unknown Service type of a vip network", createVMRequest(`{}`, `{"v":{"type":"vip","ip":"192.0.2.1","cloud_properties":{"service_type":"NodePort"}}}`), cpiError, `networks.v.cloud_properties.service_type`),
		Entry("a disruption budget with both limits", createVMRequest(`{"disruption_budget":{"min_available":1,"max_unavailable":1}}`, `{}`), cpiError, `exactly one of min_available and max_unavailable`),
		Entry("a disruption budget that blocks every drain", createVMRequest(`{"disruption_budget":{"max_unavailable":0}}`, `{}`), cpiError, `disruption_budget.max_unavailable`),
		Entry("a disruption budget with a percentage", createVMRequest(`{"disruption_budget":{"max_unavailable":"50%"}}`, `{}`), cpiError, `disruption_budget.max_unavailable must be a whole number, not a string`),
		Entry("a disruption budget without a group", createVMRequest(`{"disruption_budget":{"max_unavailable":1}}`, `{}`), cpiError, `env.bosh.group`),
		Entry("a manual network without an address", createVMRequest(`{}`, `{"n":{"type":"manual"}}`), cpiError, "networks.n.ip"),
		Entry("a network of an unknown type", createVMRequest(`{}`, `{"n":{"type":"magic"}}`), cpiError, "networks.n.type"),
		Entry("two addresses of the same family", createVMRequest(`{}`, `{"n":{"type":"manual","ip":"10.0.0.1"},"m":{"type":"manual","ip":"10.0.0.2"}}`), "Bosh::Clouds::NotSupported", "m and n"),
		Entry("an agent ID that is not valid in a Pod name", `{"method":"create_vm","arguments":["A_b","i:1",{},{},[],{}],"api_version":2}`, cpiError, "agent_id"),
		Entry("a stemcell CID that is not an image reference", `{"method":"create_vm","arguments":["a","no image",{},{},[],{}],"api_version":2}`, cpiError, "no image"),
		Entry("a stemcell with an invalid image reference", `{"method":"create_stemcell","arguments":["i",{"image":"UPPER CASE"}],"api_version":2}`, cpiError, "cloud_properties.image"),
		Entry("a light stemcell of another IaaS", `{"method":"create_stemcell","arguments":["i",{"ami":{"us-east-1":"ami-1"},"infrastructure":"aws"}],"api_version":2}`, cpiError, "the stemcell is for virtual machines of aws"),
		Entry("a stemcell with an image of another type", `{"method":"create_stemcell","arguments":["i",{"image":{"publisher":"p"}}],"api_version":2}`, cpiError, "cloud_properties.image must be a string, not a hash"),
		Entry("a stemcell with a version that is a number", `{"method":"create_stemcell","arguments":["i",{"image":"a.test/b","version":1.36}],"api_version":2}`, cpiError, "cloud_properties.version must be a string, not a number; put it in quotes"),
		Entry("a stemcell with a scheme in its image reference", `{"method":"create_stemcell","arguments":["i",{"image":"docker://ghcr.io/a/b:1"}],"api_version":2}`, cpiError, "remove docker:// before ghcr.io/a/b:1"),
		Entry("a disk size of another type", `{"method":"create_disk","arguments":["10240",{},null],"api_version":2}`, cpiError, "argument 1 must be a whole number, not a string"),
		Entry("networks of another type", `{"method":"create_vm","arguments":["a","i:1",{},[],[],{}],"api_version":2}`, cpiError, "networks must be a hash, not a list"),
		Entry("name servers of another type", createVMRequest(`{}`, `{"n":{"type":"dynamic","dns":"8.8.8.8"}}`), cpiError, `networks["n"].dns must be a list, not a string`),
		Entry("vm_resources of another type", `{"method":"calculate_vm_cloud_properties","arguments":[{"cpu":"2","ram":1,"ephemeral_disk_size":1}],"api_version":2}`, cpiError, "vm_resources.cpu must be a whole number, not a string"),
		Entry("cloud properties of another type", `{"method":"create_disk","arguments":[64,[],null],"api_version":2}`, cpiError, "cloud_properties must be a hash, not a list"),
		Entry("vm_resources without a CPU", `{"method":"calculate_vm_cloud_properties","arguments":[{"ram":1}],"api_version":2}`, cpiError, "cpu"),
	)

	It("of a megabyte of random data leads to an error, too", func(ctx context.Context) {
		garbage := make([]byte, 1<<20)
		source := rand.NewChaCha8([32]byte{1})
		_, _ = source.Read(garbage)
		response, err := env.CallRaw(ctx, garbage)
		Expect(err).NotTo(HaveOccurred())
		Expect(response.Error.Type).To(Equal(cpiError))
	})
})

// createDiskRequest returns a request for create_disk with these cloud_properties.
func createDiskRequest(properties string) string {
	return fmt.Sprintf(`{"method":"create_disk","arguments":[64,%s,null],"api_version":2}`, properties)
}

// createVMRequest returns a request for create_vm with these cloud_properties and networks.
func createVMRequest(properties, networks string) string {
	return fmt.Sprintf(`{"method":"create_vm","arguments":["a","i:1",%s,%s,[],{}],"api_version":2}`, properties, networks)
}

var _ = Describe("A configuration", func() {
	directorWithFile := func(content string) *director.Director {
		path := filepath.Join(GinkgoT().TempDir(), "cpi.json")
		Expect(os.WriteFile(path, []byte(content), 0o600)).To(Succeed())
		return &director.Director{CPI: cpiPath, Config: path}
	}

	DescribeTable("that is invalid is named in every response:",
		func(ctx context.Context, content, message string) {
			for _, method := range []string{"info", "has_vm"} {
				arguments := map[string][]any{"info": {}, "has_vm": {"vm"}}[method]
				response, err := directorWithFile(content).Call(ctx, method, arguments...)
				Expect(err).NotTo(HaveOccurred())
				Expect(response.Error).NotTo(BeNil())
				Expect(response.Error.Type).To(Equal(cpiError))
				Expect(response.Error.Message).To(ContainSubstring(message))
			}
		},
		Entry("YAML", `kubernetes: {}`, "cpi.json"),
		Entry("an unknown key", `{"agent":{"mbus":"nats://a:1"},"kubernetis":{}}`, `did you mean "kubernetes"?`),
		Entry("an unknown nested key", `{"agent":{"mbus":"nats://a:1","mbuss":""}}`, `did you mean "mbus"?`),
		Entry("a missing key", `{}`, "agent.mbus is missing"),
		Entry("a value of the wrong type", `{"agent":{"mbus":1}}`, "agent.mbus"),
		Entry("two kubeconfigs", `{"agent":{"mbus":"nats://a:1"},"kubernetes":{"kubeconfig":"x","kubeconfig_path":"y"}}`, "kubeconfig_path"),
		Entry("a timeout without a unit", `{"agent":{"mbus":"nats://a:1"},"kubernetes":{"timeouts":{"create_vm":"10"}}}`, "duration"),
		Entry("an unknown log level", `{"agent":{"mbus":"nats://a:1"},"kubernetes":{"log":{"level":"loud"}}}`, "kubernetes.log.level"),
	)

	It("that does not exist is named", func(ctx context.Context) {
		response, err := (&director.Director{CPI: cpiPath, Config: "/no/such/cpi.json"}).Call(ctx, "has_vm", "vm")
		Expect(err).NotTo(HaveOccurred())
		Expect(response.Error.Message).To(ContainSubstring("/no/such/cpi.json"))
	})

	It("with an API server that does not respond leads to an error, but info succeeds", func(ctx context.Context) {
		kubeconfig := `{"apiVersion":"v1","kind":"Config","current-context":"c","clusters":[{"name":"c","cluster":{"server":"http://127.0.0.1:1"}}],"contexts":[{"name":"c","context":{"cluster":"c","user":"c"}}],"users":[{"name":"c","user":{}}]}`
		path := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
		Expect(os.WriteFile(path, []byte(kubeconfig), 0o600)).To(Succeed())
		d := directorWithFile(fmt.Sprintf(`{"agent":{"mbus":"nats://a:1"},"kubernetes":{"kubeconfig_path":%q,"timeouts":{"request":"100ms"}}}`, path))
		response, err := d.Call(ctx, "has_vm", "vm")
		Expect(err).NotTo(HaveOccurred())
		Expect(response.Error.Type).To(Equal("Bosh::Clouds::CloudError"))
		Expect(response.Error.Message).To(ContainSubstring("cannot reach the Kubernetes API server"))
		response, err = d.Call(ctx, "info")
		Expect(err).NotTo(HaveOccurred())
		Expect(response.Error).To(BeNil())
	})

	It("can be replaced by properties of a cpi-config", func(ctx context.Context) {
		env := newTestEnv(ctx)
		raw, err := os.ReadFile(filepath.Join(sharedDir, env.namespace+".kubeconfig"))
		Expect(err).NotTo(HaveOccurred())
		d := directorWithFile(`{"agent":{"mbus":"nats://a:1"},"kubernetes":{"kubeconfig_path":"/no/such/file"}}`)
		response, err := d.CallRaw(ctx, fmt.Appendf(nil, `{"method":"has_vm","arguments":["vm"],"context":{"director_uuid":"d","kubernetes":{"kubeconfig":%q}},"api_version":2}`, raw))
		Expect(err).NotTo(HaveOccurred())
		Expect(response.Error).To(BeNil())
	})

	It("lets a kubeconfig of a cpi-config run a credential plugin only if it allows that command", func(ctx context.Context) {
		ran := filepath.Join(GinkgoT().TempDir(), "ran")
		kubeconfig := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"c","clusters":[{"name":"c","cluster":{"server":"https://127.0.0.1:1"}}],
			"contexts":[{"name":"c","context":{"cluster":"c","user":"u","namespace":"n"}}],"users":[{"name":"u","user":{"exec":{
			"apiVersion":"client.authentication.k8s.io/v1","command":"touch","args":[%q],"interactiveMode":"Never"}}}]}`, ran)
		request := fmt.Appendf(nil, `{"method":"has_vm","arguments":["vm"],"context":{"kubernetes":{"kubeconfig":%q}},"api_version":2}`, kubeconfig)
		callWith := func(setting string) *director.Error {
			response, err := directorWithFile(`{"agent":{"mbus":"nats://a:1"},"kubernetes":{"timeouts":{"request":"100ms"}`+setting+`}}`).CallRaw(ctx, request)
			Expect(err).NotTo(HaveOccurred())
			Expect(response.Error).NotTo(BeNil())
			return response.Error
		}
		Expect(callWith("")).To(HaveField("Message", ContainSubstring(`users[u].user.exec must not run program "touch"`)))
		Expect(ran).NotTo(BeAnExistingFile())
		Expect(callWith(`,"cpi_config":{"allowed_commands":["touch"]}`)).To(HaveField("Message", Not(ContainSubstring("must not run"))))
		Expect(ran).To(BeAnExistingFile())
	})
})

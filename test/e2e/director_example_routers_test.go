//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// webExample is the deployment manifests/examples/routers.yml.
type webExample struct {
	*exampleDeployment
	apps, routers []*testVM
}

func newWebExample(ctx context.Context) *webExample {
	GinkgoHelper()
	w := &webExample{exampleDeployment: newExampleDeployment(ctx, "web", "web")}
	instances := exampleInstanceCounts("routers")
	for range instances["app"] {
		disk := w.createDisk(ctx, 64, map[string]any{})
		vm := w.createInstance(ctx, disk)
		vm.attach(ctx, disk)
		w.apps = append(w.apps, vm)
	}
	w.compileProgram(ctx, w.apps[0], buildWebProgram(ctx))
	for range instances["router"] {
		w.routers = append(w.routers, w.newRouter(ctx, newAddress()))
	}
	return w
}

// buildWebProgram builds the program of the example's package, and returns its path.
func buildWebProgram(ctx context.Context) string {
	GinkgoHelper()
	program := filepath.Join(GinkgoT().TempDir(), "web")
	build := exec.CommandContext(ctx, "go", "build", "-o", program, "bosh-kubernetes-cpi/manifests/examples/release/cmd/web")
	build.Env = append(build.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(out))
	return program
}

// newRouter creates a VM with the example's vm_extensions.
func (env *webExample) newRouter(ctx context.Context, address string) *testVM {
	GinkgoHelper()
	return env.createVMFromSpec(ctx, vmSpec{stemcell: env.stemcell, bus: env.bus, group: "router", networks: manualNetwork(address), properties: vmExtensions("web-service", "one-at-a-time")})
}

// webAppSpec returns the apply spec of app instance n.
func (env *webExample) webAppSpec(ctx context.Context, n int) map[string]any {
	GinkgoHelper()
	return env.exampleSpec(ctx, exampleInstance{job: "app", group: "app", id: fmt.Sprint(n), address: env.apps[n].address})
}

// webRouterSpec returns the apply spec of router instance n.
func (env *webExample) webRouterSpec(ctx context.Context, n int) map[string]any {
	GinkgoHelper()
	var instances []any
	for i, vm := range env.apps {
		instances = append(instances, map[string]any{"id": fmt.Sprint(i), "address": vm.address})
	}
	return env.exampleSpec(ctx, exampleInstance{job: "router", group: "router", id: fmt.Sprint(n), address: env.routers[n].address,
		links: map[string]any{"app": map[string]any{"instances": instances, "properties": map[string]any{"port": 8080}}}})
}

// serviceEndpoints returns the addresses to which the example's Service sends requests.
func (env *webExample) serviceEndpoints(ctx context.Context) ([]string, error) {
	return env.listReadyAddresses(ctx, "web")
}

// sortedAddresses returns the addresses of the VMs, sorted.
func sortedAddresses(vms ...*testVM) []string {
	var addresses []string
	for _, vm := range vms {
		addresses = append(addresses, vm.address)
	}
	slices.Sort(addresses)
	return addresses
}

var _ = Describe("The routers example", Label("director", "examples", "extended"), Ordered, func() {
	var (
		env     *webExample
		address string // address of the Service
	)
	clusterIP := func(ctx context.Context) string {
		GinkgoHelper()
		service, err := env.cluster.CoreV1().Services(env.namespace).Get(ctx, "web", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		return service.Spec.ClusterIP
	}
	BeforeAll(func(ctx context.Context) { env = newWebExample(ctx) }, NodeTimeout(2*longTest))

	It("has one Service that sends requests to both routers when they are ready", func(ctx context.Context) {
		Expect(env.serviceEndpoints(ctx)).To(BeEmpty(), "no job runs yet")
		address = clusterIP(ctx)
		for n, vm := range env.apps {
			vm.update(ctx, env.webAppSpec(ctx, n))
		}
		for n, vm := range env.routers {
			vm.update(ctx, env.webRouterSpec(ctx, n))
		}
		Eventually(env.serviceEndpoints).WithContext(ctx).Should(Equal(sortedAddresses(env.routers...)))
	}, NodeTimeout(longTest))

	It("reaches both instances of the app through each router", func(ctx context.Context) {
		for _, vm := range env.routers {
			responses := strings.Fields(env.apps[0].run(ctx, "for i in {1..6}; do curl --silent --show-error --fail http://"+vm.address+":8080/; done"))
			Expect(responses).To(And(ContainElement("app/0:"), ContainElement("app/1:")))
		}
	}, NodeTimeout(longTest))

	It("reaches both instances of the app by the Service's name, from a VM in the cluster", func(ctx context.Context) {
		url := "http://web." + env.namespace + ".svc.cluster.local/"
		responses := strings.Fields(env.apps[0].run(ctx, "for i in {1..20}; do curl --silent --show-error --fail "+url+"; done"))
		Expect(responses).To(And(HaveLen(5*20), ContainElement("app/0:"), ContainElement("app/1:")))
	}, NodeTimeout(longTest))

	It("sends no requests to a router while its job is stopped", func(ctx context.Context) {
		env.routers[0].stop(ctx, env.webRouterSpec(ctx, 0))
		Eventually(env.serviceEndpoints).WithContext(ctx).Should(Equal(sortedAddresses(env.routers[1])))
		env.routers[0].callAgent(ctx, "start")
		Eventually(env.serviceEndpoints).WithContext(ctx).Should(Equal(sortedAddresses(env.routers...)))
	}, NodeTimeout(longTest))

	It("loses no request while the job of a router is stopped", func(ctx context.Context) {
		const done, lost = "/tmp/requests-done", "/tmp/requests-lost"
		client := env.apps[0]
		client.run(ctx, "rm -f "+done+" "+lost)
		runConcurrently(
			func() {
				client.run(ctx, "until [ -e "+done+" ]; do curl --silent --show-error --fail http://"+address+"/ >/dev/null 2>>"+lost+" || true; done")
			},
			func() {
				defer client.run(ctx, "touch "+done)
				env.routers[0].stop(ctx, env.webRouterSpec(ctx, 0))
			},
		)
		Expect(client.run(ctx, "cat "+lost)).To(BeEmpty())
		env.routers[0].callAgent(ctx, "start")
		Eventually(env.serviceEndpoints).WithContext(ctx).Should(Equal(sortedAddresses(env.routers...)))
	}, NodeTimeout(longTest))

	It("keeps its Service's address when a router's VM is recreated, and sends requests to the new VM", func(ctx context.Context) {
		vm := env.routers[1]
		vm.stop(ctx, env.webRouterSpec(ctx, 1))
		env.mustCall(ctx, "delete_vm", vm.cid)
		env.routers[1] = env.newRouter(ctx, vm.address)
		env.routers[1].update(ctx, env.webRouterSpec(ctx, 1))
		Eventually(env.serviceEndpoints).WithContext(ctx).Should(Equal(sortedAddresses(env.routers...)))
		Expect(clusterIP(ctx)).To(Equal(address))
	}, NodeTimeout(longTest))
})

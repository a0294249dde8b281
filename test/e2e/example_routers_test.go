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
	*example
	apps, routers []*machine
}

func newWeb(ctx context.Context) *webExample {
	GinkgoHelper()
	w := &webExample{example: newExample(ctx, "web", "web")}
	program := filepath.Join(GinkgoT().TempDir(), "web")
	build := exec.CommandContext(ctx, "go", "build", "-o", program, "bosh-kubernetes-cpi/manifests/examples/release/cmd/web")
	build.Env = append(build.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(out))
	instances := exampleInstances("routers")
	for range instances["app"] {
		w.apps = append(w.apps, w.instance(ctx))
	}
	w.compileProgram(ctx, w.apps[0], program)
	for range instances["router"] {
		w.routers = append(w.routers, w.newRouter(ctx, newAddress()))
	}
	return w
}

// newRouter makes a VM with the example's vm_extension.
func (w *webExample) newRouter(ctx context.Context, address string) *machine {
	GinkgoHelper()
	return w.bringMachine(ctx, wanted{stemcell: w.stemcell, bus: w.bus, group: "router", networks: manual(address), properties: exampleExtension("routers")})
}

// specOfApp and specOfRouter are the specs of the instances of these numbers.
func (w *webExample) specOfApp(ctx context.Context, n int) map[string]any {
	GinkgoHelper()
	return w.exampleSpec(ctx, exampleInstance{job: "app", group: "app", id: fmt.Sprint(n), address: w.apps[n].address})
}

func (w *webExample) specOfRouter(ctx context.Context, n int) map[string]any {
	GinkgoHelper()
	var instances []any
	for i, m := range w.apps {
		instances = append(instances, map[string]any{"id": fmt.Sprint(i), "address": m.address})
	}
	return w.exampleSpec(ctx, exampleInstance{job: "router", group: "router", id: fmt.Sprint(n), address: w.routers[n].address,
		links: map[string]any{"app": map[string]any{"instances": instances, "properties": map[string]any{"port": 8080}}}})
}

// behind are the addresses to which the example's Service sends requests.
func (w *webExample) behind(ctx context.Context) ([]string, error) {
	t := traffic{w: w.world, service: "example-web"}
	err := t.look(ctx)
	return t.endpoints, err
}

// addressesOf are those of machines, in order.
func addressesOf(machines ...*machine) []string {
	var all []string
	for _, m := range machines {
		all = append(all, m.address)
	}
	slices.Sort(all)
	return all
}

var _ = Describe("The example with two routers in front of an app", Label("director", "examples", "extended"), Ordered, func() {
	var (
		w       *webExample
		address string // of the Service
	)
	clusterIP := func(ctx context.Context) string {
		GinkgoHelper()
		service, err := w.cluster.CoreV1().Services(w.namespace).Get(ctx, "example-web", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		return service.Spec.ClusterIP
	}
	BeforeAll(func(ctx context.Context) { w = newWeb(ctx) }, NodeTimeout(2*longTest))

	It("has one Service, which sends requests to both routers once they serve", func(ctx context.Context) {
		Expect(w.behind(ctx)).To(BeEmpty(), "no job runs yet")
		address = clusterIP(ctx)
		for n, m := range w.apps {
			m.update(ctx, w.specOfApp(ctx, n))
		}
		for n, m := range w.routers {
			m.update(ctx, w.specOfRouter(ctx, n))
		}
		Eventually(w.behind).WithContext(ctx).Should(Equal(addressesOf(w.routers...)))
	}, NodeTimeout(longTest))

	It("answers by either router with both instances of the app", func(ctx context.Context) {
		for _, m := range w.routers {
			said := strings.Fields(w.apps[0].run(ctx, "for i in {1..6}; do curl --silent --show-error --fail http://"+m.address+":8080/; done"))
			Expect(said).To(And(ContainElement("app/0"), ContainElement("app/1")))
		}
	}, NodeTimeout(longTest))

	It("leaves a router out whose job is stopped", func(ctx context.Context) {
		w.routers[0].stop(ctx, w.specOfRouter(ctx, 0))
		Eventually(w.behind).WithContext(ctx).Should(Equal(addressesOf(w.routers[1])))
		w.routers[0].tell(ctx, "start")
		Eventually(w.behind).WithContext(ctx).Should(Equal(addressesOf(w.routers...)))
	}, NodeTimeout(longTest))

	It("has the Service's address still, and the new router behind it, when a router's VM is made anew", func(ctx context.Context) {
		m := w.routers[1]
		m.stop(ctx, w.specOfRouter(ctx, 1))
		w.must(ctx, "delete_vm", m.cid)
		w.routers[1] = w.newRouter(ctx, m.address)
		w.routers[1].update(ctx, w.specOfRouter(ctx, 1))
		Eventually(w.behind).WithContext(ctx).Should(Equal(addressesOf(w.routers...)))
		Expect(clusterIP(ctx)).To(Equal(address))
	}, NodeTimeout(longTest))
})

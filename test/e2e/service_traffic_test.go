//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// routerProperties are the cloud_properties of VMs behind one Service, with a readiness probe for the job.
var routerProperties = map[string]any{
	"services":        []any{map[string]any{"name": "routers", "ports": []any{8080}}},
	"readiness_probe": map[string]any{"httpGet": map[string]any{"path": "/health", "port": 8080}, "periodSeconds": 1, "failureThreshold": 1},

	"termination_grace_period": 60,
}

// The scripts of the job "router". Like Gorouter, the job fails its health check when it drains, and keeps serving for a few seconds
// before it stops.
const (
	routerCtl = `#!/bin/bash
run=/var/vcap/sys/run/router
case $1 in
  start)
    mkdir -p $run
    rm -f $run/draining
    perl -MIO::Socket::INET -e '
      my $listener = IO::Socket::INET->new(LocalPort => 8080, Listen => 100, ReuseAddr => 1) or die;
      while (1) {
        my $client = $listener->accept or next;
        my $request = <$client> // "";
        while (<$client>) { last if /^\r?\n$/ }
        my $busy = $request =~ m{ /health } && -e "/var/vcap/sys/run/router/draining";
        print $client "HTTP/1.1 ", $busy ? "503 Busy" : "200 OK", "\r\nConnection: close\r\n\r\n", $client->sockhost;
        close $client;
      }' </dev/null >/dev/null 2>&1 &
    echo $! >$run/router.pid ;;
  stop) kill "$(cat $run/router.pid)" ;;
esac
`
	routerDrain = `#!/bin/bash
touch /var/vcap/sys/run/router/draining
sleep 4
echo 0
`
	routerMonit = `check process router
  with pidfile /var/vcap/sys/run/router/router.pid
  start program "/var/vcap/jobs/router/bin/ctl start"
  stop program "/var/vcap/jobs/router/bin/ctl stop"
  group vcap
`
)

// routerSpec returns the apply spec of an instance with the job "router".
func (d *directorEnv) routerSpec(address string) map[string]any {
	GinkgoHelper()
	return d.applySpec(instanceSpec{deployment: "directed", group: "routers", id: "router-0", job: "router", address: address,
		files: map[string]string{"router/monit": routerMonit, "router/bin/ctl": routerCtl, "router/bin/drain": routerDrain}})
}

// createRouter creates a VM with the job "router".
func (d *directorEnv) createRouter(ctx context.Context) *testVM {
	GinkgoHelper()
	vm := d.createRouterVM(ctx)
	vm.update(ctx, d.routerSpec(vm.address))
	return vm
}

// createRouterVM creates a VM for the job, which does not run yet.
func (d *directorEnv) createRouterVM(ctx context.Context) *testVM {
	GinkgoHelper()
	return d.createVMFromSpec(ctx, vmSpec{stemcell: d.stemcell, bus: d.bus, properties: routerProperties})
}

// trafficGenerator sends requests to the address of a Service one at a time, each in a new connection. Each response contains the address
// of the endpoint that kube-proxy selected.
type trafficGenerator struct {
	url       string
	mutex     sync.Mutex
	responses map[string]int // number of responses, by endpoint
	failures  []string
	cancel    context.CancelFunc
	workers   sync.WaitGroup

	reportedRequests, reportedFailures int
}

// startTraffic starts sending requests.
func (env *testEnv) startTraffic(ctx context.Context, service string) *trafficGenerator {
	GinkgoHelper()
	object, err := env.cluster.CoreV1().Services(env.namespace).Get(ctx, service, metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithCancel(ctx)
	t := &trafficGenerator{url: "http://" + object.Spec.ClusterIP + ":8080/", responses: map[string]int{}, cancel: cancel}
	DeferCleanup(t.stop)
	t.workers.Go(func() {
		ticker := time.NewTicker(10 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				if endpoint, err := httpGet(ctx, t.url); ctx.Err() == nil {
					t.record(endpoint, err)
				}
			}
		}
	})
	return t
}

// listReadyAddresses returns the addresses to which the Service sends traffic, sorted.
func (env *testEnv) listReadyAddresses(ctx context.Context, service string) ([]string, error) {
	list, err := env.cluster.DiscoveryV1().EndpointSlices(env.namespace).List(ctx,
		metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + service})
	if err != nil {
		return nil, err
	}
	var ready []string
	for _, slice := range list.Items {
		for _, endpoint := range slice.Endpoints {
			if endpoint.Conditions.Ready == nil || *endpoint.Conditions.Ready {
				ready = append(ready, endpoint.Addresses...)
			}
		}
	}
	slices.Sort(ready)
	return ready, nil
}

// record counts a response, or stores the error if there was none.
func (t *trafficGenerator) record(endpoint string, err error) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if err != nil {
		t.failures = append(t.failures, time.Now().Format(time.StampMilli)+": "+err.Error())
		return
	}
	t.responses[endpoint]++
}

var httpClient = &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// httpGet returns the body of a successful response.
func httpGet(ctx context.Context, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	response, err := httpClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %s", response.Status)
	}
	return string(body), err
}

// responseCount returns the number of responses from this endpoint.
func (t *trafficGenerator) responseCount(endpoint string) int {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return t.responses[endpoint]
}

// waitForResponses waits for another 50 responses from each of the VMs.
func (t *trafficGenerator) waitForResponses(ctx context.Context, vms ...*testVM) {
	GinkgoHelper()
	t.waitForManyResponses(ctx, 50, vms...)
}

// waitForManyResponses waits for so many responses from each of the VMs.
func (t *trafficGenerator) waitForManyResponses(ctx context.Context, count int, vms ...*testVM) {
	GinkgoHelper()
	for _, vm := range vms {
		previous := t.responseCount(vm.address)
		Eventually(func() int { return t.responseCount(vm.address) }).WithContext(ctx).Should(BeNumerically(">=", previous+count))
	}
}

// reportStep adds the requests since the previous report, and those that failed, to the report of the spec.
func (t *trafficGenerator) reportStep(name string) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	sent, lost := len(t.failures), len(t.failures)
	for _, count := range t.responses {
		sent += count
	}
	AddReportEntry(name, fmt.Sprintf("%d requests, %d lost", sent-t.reportedRequests, lost-t.reportedFailures))
	t.reportedRequests, t.reportedFailures = sent, lost
}

// stop stops sending requests.
func (t *trafficGenerator) stop() {
	t.cancel()
	t.workers.Wait()
}

// expectNoLoss stops sending requests, and expects that each of them got a response.
func (t *trafficGenerator) expectNoLoss() {
	GinkgoHelper()
	t.stop()
	Expect(t.failures).To(BeEmpty(), func() string { return strings.Join(t.failures, "\n") })
}

var _ = Describe("A pair of routers behind a Service", Label("vms", "extended", labelSharedKernel), Serial, func() {
	DescribeTable("loses no request while the director recreates or swaps a router, or Kubernetes evicts one",
		func(ctx context.Context, stemcell string) {
			d := newDirectorEnv(ctx, stemcell)
			first, second := d.createRouter(ctx), d.createRouter(ctx)
			traffic := d.startTraffic(ctx, "routers")
			traffic.waitForResponses(ctx, first, second)

			By("recreating a router like bosh recreate")
			first.stop(ctx, d.routerSpec(first.address))
			d.mustCall(ctx, "delete_vm", first.cid)
			traffic.waitForResponses(ctx, second)
			next := d.createRouter(ctx)
			traffic.waitForResponses(ctx, next, second)
			traffic.reportStep("recreate")

			By("replacing a router like an update with create-swap-delete")
			swapped := d.createRouterVM(ctx)
			traffic.waitForResponses(ctx, next, second)
			next.stop(ctx, d.routerSpec(next.address))
			swapped.update(ctx, d.routerSpec(swapped.address))
			traffic.waitForManyResponses(ctx, 500, swapped, second) // the director deletes orphaned VMs later
			d.mustCall(ctx, "delete_vm", next.cid)
			traffic.waitForResponses(ctx, swapped, second)
			traffic.reportStep("create-swap-delete")

			By("evicting a router")
			pods := d.cluster.CoreV1().Pods(d.namespace)
			Expect(d.cluster.PolicyV1().Evictions(d.namespace).Evict(ctx, &policyv1.Eviction{
				ObjectMeta: metav1.ObjectMeta{Name: second.cid, Namespace: d.namespace},
			})).To(Succeed())
			Eventually(second.tryRun).WithContext(ctx).WithArguments("ls /var/vcap/sys/run/router/draining").Should(Not(BeEmpty()), "the drain script runs")
			Eventually(func() error { _, err := pods.Get(ctx, second.cid, metav1.GetOptions{}); return err }).WithContext(ctx).ShouldNot(Succeed())
			traffic.waitForResponses(ctx, swapped)
			traffic.reportStep("eviction")
			traffic.expectNoLoss()
		},
		Entry("with runit", "E2E_STEMCELL", NodeTimeout(longTest)),
		Entry("with systemd", withSystemd, NodeTimeout(longTest)),
	)
})

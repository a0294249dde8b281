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
}

// The scripts of the job "router". Like Cloud Foundry's router, it reports that it is unhealthy when it drains, serves for some more
// seconds, and is then stopped.
const (
	routerCtl = `#!/bin/bash
run=/var/vcap/sys/run/router
case $1 in
  start)
    mkdir -p $run
    rm -f $run/draining
    perl -MIO::Socket::INET -e '
      my $listening = IO::Socket::INET->new(LocalPort => 8080, Listen => 100, ReuseAddr => 1) or die;
      while (1) {
        my $client = $listening->accept or next;
        my $request = <$client> // "";
        while (<$client>) { last if /^\r?\n$/ }
        my $busy = $request =~ m{ /health } && -e "/var/vcap/sys/run/router/draining";
        print $client "HTTP/1.1 ", $busy ? "503 Busy" : "200 OK", "\r\nContent-Length: 3\r\nConnection: close\r\n\r\nok\n";
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
	vm := d.createVMFromSpec(ctx, vmSpec{stemcell: d.stemcell, bus: d.bus, properties: routerProperties})
	vm.update(ctx, d.routerSpec(vm.address))
	return vm
}

// trafficGenerator sends requests to a Service one after the other, like a kube-proxy forwards them: each is a new connection to one
// of the endpoints that were ready at the last refresh. It refreshes the endpoints once a second, the shortest interval at which a
// kube-proxy changes its rules.
type trafficGenerator struct {
	env       *testEnv
	service   string
	mutex     sync.Mutex
	endpoints []string
	answers   map[string]int // number of answered requests, by endpoint
	failures  []string
	cancel    context.CancelFunc
	workers   sync.WaitGroup
}

// startTraffic starts to send requests.
func (env *testEnv) startTraffic(ctx context.Context, service string) *trafficGenerator {
	GinkgoHelper()
	ctx, cancel := context.WithCancel(ctx)
	t := &trafficGenerator{env: env, service: service, answers: map[string]int{}, cancel: cancel}
	DeferCleanup(t.stop)
	Expect(t.refreshEndpoints(ctx)).To(Succeed())
	t.workers.Go(func() {
		runEvery(ctx, time.Second, func() {
			if err := t.refreshEndpoints(ctx); err != nil && ctx.Err() == nil {
				t.record("", err)
			}
		})
	})
	t.workers.Go(func() {
		round := 0
		runEvery(ctx, 10*time.Millisecond, func() { round++; t.request(ctx, round) })
	})
	return t
}

// runEvery calls do at each interval, until the context is canceled.
func runEvery(ctx context.Context, interval time.Duration, do func()) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			do()
		}
	}
}

// refreshEndpoints reads the ready endpoints of the Service.
func (t *trafficGenerator) refreshEndpoints(ctx context.Context) error {
	list, err := t.env.cluster.DiscoveryV1().EndpointSlices(t.env.namespace).List(ctx,
		metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + t.service})
	if err != nil {
		return err
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
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.endpoints = ready
	return nil
}

// request sends a request to the endpoint for this turn.
func (t *trafficGenerator) request(ctx context.Context, turn int) {
	t.mutex.Lock()
	endpoints := t.endpoints
	t.mutex.Unlock()
	if len(endpoints) == 0 {
		t.record("", fmt.Errorf("the Service has no endpoint"))
		return
	}
	endpoint := endpoints[turn%len(endpoints)]
	if err := httpGet(ctx, "http://"+endpoint+":8080/"); ctx.Err() == nil {
		t.record(endpoint, err)
	}
}

// record counts an answer, or stores why there was none.
func (t *trafficGenerator) record(endpoint string, err error) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if err != nil {
		t.failures = append(t.failures, time.Now().Format(time.StampMilli)+" "+endpoint+": "+err.Error())
		return
	}
	t.answers[endpoint]++
}

var httpClient = &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

func httpGet(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	response, err := httpClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.ReadAll(response.Body); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("answered %s", response.Status)
	}
	return nil
}

// answerCount returns how many requests this endpoint has answered.
func (t *trafficGenerator) answerCount(endpoint string) int {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return t.answers[endpoint]
}

// waitForAnswers waits until each of the VMs has answered another 50 requests.
func (t *trafficGenerator) waitForAnswers(ctx context.Context, vms ...*testVM) {
	GinkgoHelper()
	for _, vm := range vms {
		previous := t.answerCount(vm.address)
		Eventually(func() int { return t.answerCount(vm.address) }).WithContext(ctx).Should(BeNumerically(">=", previous+50))
	}
}

// stop stops sending requests.
func (t *trafficGenerator) stop() {
	t.cancel()
	t.workers.Wait()
}

// expectNoLoss stops sending requests, and fails if one of them was not answered.
func (t *trafficGenerator) expectNoLoss() {
	GinkgoHelper()
	t.stop()
	all := 0
	for _, count := range t.answers {
		all += count
	}
	AddReportEntry("requests", fmt.Sprintf("%d answered, %d lost", all, len(t.failures)))
	Expect(t.failures).To(BeEmpty(), func() string { return strings.Join(t.failures, "\n") })
}

var _ = Describe("A pair of routers behind a Service", Label("vms", "extended", labelSharedKernel), Serial, func() {
	DescribeTable("loses no request while the director recreates one, and while Kubernetes evicts one",
		func(ctx context.Context, stemcell string) {
			d := newDirectorEnv(ctx, stemcell)
			one, other := d.createRouter(ctx), d.createRouter(ctx)
			clients := d.startTraffic(ctx, "routers")
			clients.waitForAnswers(ctx, one, other)

			By("recreating a router as bosh recreate does")
			one.stop(ctx, d.routerSpec(one.address))
			d.mustCall(ctx, "delete_vm", one.cid)
			clients.waitForAnswers(ctx, other)
			next := d.createRouter(ctx)
			clients.waitForAnswers(ctx, next, other)

			By("evicting a router")
			pods := d.cluster.CoreV1().Pods(d.namespace)
			Expect(d.cluster.PolicyV1().Evictions(d.namespace).Evict(ctx, &policyv1.Eviction{
				ObjectMeta: metav1.ObjectMeta{Name: other.cid, Namespace: d.namespace},
			})).To(Succeed())
			Eventually(func() error { _, err := pods.Get(ctx, other.cid, metav1.GetOptions{}); return err }).WithContext(ctx).ShouldNot(Succeed())
			clients.waitForAnswers(ctx, next)
			clients.expectNoLoss()
		},
		Entry("with runit", "E2E_STEMCELL", NodeTimeout(longTest)),
		Entry("with systemd", withSystemd, NodeTimeout(longTest)),
	)
})

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

// routers are VMs of a pair behind one Service, which asks the job whether it serves.
var routers = map[string]any{
	"services":        []any{map[string]any{"name": "routers", "ports": []any{8080}}},
	"readiness_probe": map[string]any{"httpGet": map[string]any{"path": "/health", "port": 8080}, "periodSeconds": 1, "failureThreshold": 1},
}

// The scripts of the job "router". As Cloud Foundry's, it says that it is not healthy any more when it is told to drain, goes
// on serving for some seconds, and is then told to end.
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
        my $asked = <$client> // "";
        while (<$client>) { last if /^\r?\n$/ }
        my $busy = $asked =~ m{ /health } && -e "/var/vcap/sys/run/router/draining";
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

// routerSpec is that of an instance with the job "router".
func (d *directed) routerSpec(address string) map[string]any {
	GinkgoHelper()
	return d.spec(instance{deployment: "directed", group: "routers", id: "router-0", job: "router", address: address,
		files: map[string]string{"router/monit": routerMonit, "router/bin/ctl": routerCtl, "router/bin/drain": routerDrain}})
}

// router makes a VM of the pair, and gives it its job.
func (d *directed) router(ctx context.Context) *machine {
	GinkgoHelper()
	m := d.bringMachine(ctx, wanted{stemcell: d.stemcell, bus: d.bus, properties: routers})
	m.update(ctx, d.routerSpec(m.address))
	return m
}

// traffic are requests to a Service, one after the other, as they come through a kube-proxy: each is a new connection to one
// of the endpoints that were ready when it last looked. It looks once a second, which is how often a kube-proxy
// changes its rules at most.
type traffic struct {
	w         *world
	service   string
	mutex     sync.Mutex
	endpoints []string
	sent      map[string]int // requests that were answered, by endpoint
	failures  []string
	end       context.CancelFunc
	ended     sync.WaitGroup
}

// send begins to send requests.
func (w *world) send(ctx context.Context, service string) *traffic {
	GinkgoHelper()
	ctx, end := context.WithCancel(ctx)
	t := &traffic{w: w, service: service, sent: map[string]int{}, end: end}
	DeferCleanup(t.stop)
	Expect(t.look(ctx)).To(Succeed())
	t.ended.Go(func() {
		every(ctx, time.Second, func() {
			if err := t.look(ctx); err != nil && ctx.Err() == nil {
				t.note("", err)
			}
		})
	})
	t.ended.Go(func() {
		turn := 0
		every(ctx, 10*time.Millisecond, func() { turn++; t.request(ctx, turn) })
	})
	return t
}

// every does it at each tick, until the context ends.
func every(ctx context.Context, interval time.Duration, do func()) {
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

// look takes over the Service's endpoints.
func (t *traffic) look(ctx context.Context) error {
	found, err := t.w.cluster.DiscoveryV1().EndpointSlices(t.w.namespace).List(ctx,
		metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + t.service})
	if err != nil {
		return err
	}
	var ready []string
	for _, slice := range found.Items {
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

// request sends one to the endpoint whose turn it is.
func (t *traffic) request(ctx context.Context, turn int) {
	t.mutex.Lock()
	endpoints := t.endpoints
	t.mutex.Unlock()
	if len(endpoints) == 0 {
		t.note("", fmt.Errorf("the Service has no endpoint"))
		return
	}
	endpoint := endpoints[turn%len(endpoints)]
	if err := get(ctx, "http://"+endpoint+":8080/"); ctx.Err() == nil {
		t.note(endpoint, err)
	}
}

// note counts an answer, or keeps why there was none.
func (t *traffic) note(endpoint string, err error) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if err != nil {
		t.failures = append(t.failures, time.Now().Format(time.StampMilli)+" "+endpoint+": "+err.Error())
		return
	}
	t.sent[endpoint]++
}

var oneConnectionEach = &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

func get(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	answer, err := oneConnectionEach.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if _, err := io.ReadAll(answer.Body); err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("answered %s", answer.Status)
	}
	return nil
}

// answered returns how many requests this endpoint has answered.
func (t *traffic) answered(endpoint string) int {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return t.sent[endpoint]
}

// reaches waits until each of the machines has answered another 50.
func (t *traffic) reaches(ctx context.Context, machines ...*machine) {
	GinkgoHelper()
	for _, m := range machines {
		before := t.answered(m.address)
		Eventually(func() int { return t.answered(m.address) }).WithContext(ctx).Should(BeNumerically(">=", before+50))
	}
}

// stop ends the requests.
func (t *traffic) stop() {
	t.end()
	t.ended.Wait()
}

// lostNone ends the requests and fails when one of them had no answer.
func (t *traffic) lostNone() {
	GinkgoHelper()
	t.stop()
	all := 0
	for _, count := range t.sent {
		all += count
	}
	AddReportEntry("requests", fmt.Sprintf("%d answered, %d lost", all, len(t.failures)))
	Expect(t.failures).To(BeEmpty(), func() string { return strings.Join(t.failures, "\n") })
}

var _ = Describe("A pair of routers behind a Service", Label("machines", "extended", thisMachine), Serial, func() {
	DescribeTable("loses no request while the director makes one again, nor while Kubernetes ends one, of which BOSH knows nothing",
		func(ctx context.Context, stemcell string) {
			d := newDirected(ctx, stemcell)
			one, other := d.router(ctx), d.router(ctx)
			clients := d.send(ctx, "routers")
			clients.reaches(ctx, one, other)

			By("bosh recreate")
			one.stop(ctx, d.routerSpec(one.address))
			d.must(ctx, "delete_vm", one.cid)
			clients.reaches(ctx, other)
			next := d.router(ctx)
			clients.reaches(ctx, next, other)

			By("an eviction")
			pods := d.cluster.CoreV1().Pods(d.namespace)
			Expect(d.cluster.PolicyV1().Evictions(d.namespace).Evict(ctx, &policyv1.Eviction{
				ObjectMeta: metav1.ObjectMeta{Name: other.cid, Namespace: d.namespace},
			})).To(Succeed())
			Eventually(func() error { _, err := pods.Get(ctx, other.cid, metav1.GetOptions{}); return err }).WithContext(ctx).ShouldNot(Succeed())
			clients.reaches(ctx, next)
			clients.lostNone()
		},
		Entry("with runit", "E2E_STEMCELL", NodeTimeout(longTest)),
		Entry("with systemd", withSystemd, NodeTimeout(longTest)),
	)
})

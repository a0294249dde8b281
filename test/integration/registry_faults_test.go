package integration

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/test/apiproxy"
	"bosh-kubernetes-cpi/test/director"
	"bosh-kubernetes-cpi/test/stemcells"
)

// Of the cells of registries a run of CI tries one of so many.
const partsOfRegistryCells = 40

// depot is a registry, empty at first, of which each request can be disturbed, and a director that is configured to use it.
type depot struct {
	world
	registry *stemcells.Registry
	requests *apiproxy.Numbered
	host     string
}

func newDepot(w world) *depot {
	GinkgoHelper()
	d := &depot{world: w, registry: stemcells.NewRegistry(false)}
	DeferCleanup(d.registry.Close)
	d.requests = &apiproxy.Numbered{Next: d.registry}
	server := httptest.NewServer(d.requests)
	DeferCleanup(server.Close)
	d.host = strings.TrimPrefix(server.URL, "http://")
	d.Director = w.with("stemcell", map[string]any{"registry": map[string]any{"repository": d.host + "/stemcells", "insecure": true}})
	return d
}

// create uploads the heavy stemcell.
func (d *depot) create() []any {
	image, properties := heavyImage()
	return []any{"create_stemcell", image, properties}
}

// holds reports whether the registry has the image of a stemcell, whole.
func (d *depot) holds(cid string) bool {
	GinkgoHelper()
	reference, _, _ := strings.Cut(strings.TrimPrefix(cid, "heavy://"), "#")
	repository, digest, _ := strings.Cut(strings.TrimPrefix(reference, d.host+"/"), "@")
	manifest := httptest.NewRecorder()
	d.registry.ServeHTTP(manifest, httptest.NewRequest(http.MethodGet, "/v2/"+repository+"/manifests/"+digest, http.NoBody))
	if manifest.Code == http.StatusNotFound {
		return false
	}
	Expect(manifest.Code).To(Equal(http.StatusOK))
	for _, blob := range digests.FindAllString(manifest.Body.String(), -1) {
		found := httptest.NewRecorder()
		d.registry.ServeHTTP(found, httptest.NewRequest(http.MethodHead, "/v2/"+repository+"/blobs/"+blob, http.NoBody))
		Expect(found.Code).To(Equal(http.StatusOK), "%s of %s", blob, cid)
	}
	return true
}

var digests = regexp.MustCompile(`sha256:[0-9a-f]{64}`)

// delivery is a call that speaks to a registry.
type delivery struct {
	name  string
	begin func(ctx context.Context, d *depot)
	call  func(d *depot) []any
	// check says what has to be so after the call was repeated.
	check func(ctx context.Context, d *depot, answer string)
}

func deliveries() []delivery {
	var cid string // of the present cell's
	upload := func(ctx context.Context, d *depot) {
		arguments := d.create()
		cid = d.must(ctx, "create_stemcell", arguments[1:]...).Text()
	}
	return []delivery{
		{
			name: "create_stemcell of a heavy stemcell", call: (*depot).create,
			check: func(ctx context.Context, d *depot, answer string) {
				Expect(d.holds(answer)).To(BeTrue())
				d.must(ctx, "delete_stemcell", answer)
				Expect(d.holds(answer)).To(BeFalse())
			},
		},
		{
			name: "delete_stemcell of a heavy stemcell", begin: upload,
			call:  func(*depot) []any { return []any{"delete_stemcell", cid} },
			check: func(_ context.Context, d *depot, _ string) { Expect(d.holds(cid)).To(BeFalse()) },
		},
		{
			name: "create_stemcell of a light stemcell", begin: upload,
			call: func(d *depot) []any {
				reference, _, _ := strings.Cut(strings.TrimPrefix(cid, "heavy://"), "#")
				return []any{"create_stemcell", os.DevNull, map[string]any{"image_reference": reference}}
			},
			check: func(_ context.Context, d *depot, answer string) {
				Expect(answer).To(HaveSuffix("#amd64"))
				Expect(d.holds(answer)).To(BeTrue())
			},
		},
	}
}

var _ = Describe("Whatever happens at any request to a registry of", Label("faults"), func() {
	for _, each := range deliveries() {
		It(each.name+", the call can be repeated and undone", func(ctx context.Context) { deliver(ctx, newWorld(ctx), each) })
	}
})

// deliver tries the cells of a call that speaks to a registry, each with a registry of its own.
func deliver(ctx context.Context, w world, each delivery) {
	undisturbed, requests := each.undisturbed(ctx, newDepot(w))
	became := outcome{Scenario: each.name + ", at the registry", Requests: len(requests)}
	for i, request := range requests {
		for _, how := range registryDisturbances() {
			c := cell{scenario: scenario{name: each.name + ", at the registry"}, n: i + 1, request: request, disturbance: how}
			drawn := wantedFaults == "" && part(c.String(), partsOfRegistryCells)
			if how.befalls != nil && !how.befalls(request) || !drawn && !c.wanted() {
				continue
			}
			became.try(c, func() { each.disturb(ctx, newDepot(w), c, undisturbed) })
		}
	}
	became.report()
}

func (each delivery) prepare(ctx context.Context, d *depot) []any {
	if each.begin != nil {
		each.begin(ctx, d)
	}
	return each.call(d)
}

// undisturbed makes the call as it should be, and returns its answer and its requests.
func (each delivery) undisturbed(ctx context.Context, d *depot) (string, []string) {
	arguments := each.prepare(ctx, d)
	d.requests.Reset(nil)
	method, _ := arguments[0].(string)
	response := d.must(ctx, method, arguments[1:]...)
	requests := d.requests.Requests()
	each.check(ctx, d, response.Text())
	return d.alike(response), requests
}

// alike is an answer without the registry's address.
func (d *depot) alike(response director.Response) string {
	return strings.ReplaceAll(answer(response), d.host, "REGISTRY")
}

// disturb makes the call with the cell's disturbance, and repeats it.
func (each delivery) disturb(ctx context.Context, d *depot, c cell, undisturbed string) {
	arguments := each.prepare(ctx, d)
	by := d.Director
	if c.brief {
		by = d.withTimeouts(briefTimeouts)
	}
	mortal, end := by.Mortal()
	d.requests.Reset(c.at(c.n, func(signal os.Signal) { _ = end(signal) }))
	method, _ := arguments[0].(string)
	first, ended := mortal.Call(ctx, method, arguments[1:]...)
	d.requests.Reset(nil)
	if c.bearable {
		Expect(ended).NotTo(HaveOccurred())
		Expect(first.Error).To(BeNil(), "the disturbed call: %s", first.Stderr)
		Expect(d.alike(first)).To(Equal(undisturbed), "the disturbed call's answer")
	}
	if ended == nil && first.Error != nil {
		Expect(first.Error.Type).To(HavePrefix("Bosh::Clouds::"))
		Expect(first.Error.Message).To(ContainSubstring(d.host))
	}
	again := d.must(ctx, method, arguments[1:]...)
	Expect(d.alike(again)).To(Equal(undisturbed), "the repeated call's answer")
	each.check(ctx, d, again.Text())
}

// registryDisturbances are what can happen at a request to a registry.
func registryDisturbances() []disturbance {
	all := append(endings(), broken()...)
	for _, refusal := range []struct {
		status   int
		code     string
		bearable bool
	}{
		{http.StatusUnauthorized, "UNAUTHORIZED", false},
		{http.StatusForbidden, "DENIED", false},
		{http.StatusNotFound, "NAME_UNKNOWN", false},
		{http.StatusTooManyRequests, "TOOMANYREQUESTS", false},
		{http.StatusInternalServerError, "UNKNOWN", true},
		{http.StatusBadGateway, "UNAVAILABLE", true},
		{http.StatusServiceUnavailable, "UNAVAILABLE", true},
		{http.StatusGatewayTimeout, "UNAVAILABLE", true},
	} {
		all = append(all, plain("a registry's "+http.StatusText(refusal.status), refusal.bearable, func(n int) apiproxy.Fault {
			return apiproxy.Instead(n, func(w http.ResponseWriter, request *http.Request) {
				_, _ = io.Copy(io.Discard, request.Body)
				stemcells.WriteError(w, refusal.status, refusal.code, "made up for a test")
			})
		}))
	}
	return all
}

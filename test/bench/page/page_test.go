package page

import (
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/test/bench/report"
)

func TestPage(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "page")
}

var sampleValues = report.Distribution{10, 12, 30}

func completeResults() *report.Results {
	cost := report.Cost{Wall: sampleValues, CPU: sampleValues, Peak: sampleValues}
	methods := []report.Method{{Name: "get_disks", Requests: []string{"list pods", "list pods", "get pods"}, Bytes: 20480, Cost: cost}}
	return &report.Results{
		Calls:   []report.ProgramCost{{Name: report.Info, Cost: cost}, {Name: report.HasVM, Cost: cost}, {Name: report.Curl, Cost: cost}},
		Scale:   []report.ScaleResult{{Name: "one namespace", VMs: 10, Disks: 20, Methods: methods}, {Name: "one namespace", VMs: 5000, Disks: 10000, Methods: methods}},
		Shared:  []report.ScaleResult{{Name: "a Service", VMs: 500, Methods: methods}},
		Deploys: []report.Deploy{{VMs: 100, Workers: 50, Seconds: 20, Bare: 15, Create: sampleValues, Attach: sampleValues}},
		Objects: []report.Object{{Name: "VM Pod", Bytes: 30000, Scripts: 9000}},
		Node: &report.Node{BareStart: sampleValues, BareEnd: sampleValues, InitStart: sampleValues, ClientStart: sampleValues,
			DiskPodStart: sampleValues, DiskPodEnd: sampleValues, Create: sampleValues, Pull: sampleValues, Attach: sampleValues,
			Detach: sampleValues, Delete: sampleValues, Timeline: []report.Moment{{What: "scheduled", At: 30}, {What: "the agent runs", At: 2300}},
			BootWrites: report.Writes{Count: 9, Bytes: 300000}},
	}
}

var _ = Describe("The page", func() {
	It("shows every part", func() {
		html, err := Render(completeResults())
		Expect(err).NotTo(HaveOccurred())
		for _, part := range []string{"Goals", "Single calls", "Scale", "5000 VMs and 10000 disks", "Shared objects", "Deploy",
			"Real node", "the agent runs", "in etcd", "list pods ×2, get pods", "20 KiB"} {
			Expect(string(html)).To(ContainSubstring(part))
		}
		Expect(string(html)).NotTo(ContainSubstring("NaN"))
	})

	It("says what to conclude from each chart", func() {
		html, err := Render(completeResults())
		Expect(err).NotTo(HaveOccurred())
		for _, conclusion := range []string{
			"info has 1.00 times and has_vm 1.00 times the value of curl",
			"With 5000 VMs, the call takes 1.0 times as long as with 10.",
			"The CPI takes 1.33 times as long as the minimal client.",
			"create_vm takes 1.00 times as long as the minimal client",
			"Most time passes before: the agent runs.",
			"A VM with a disk needs 29 KiB, of which scripts are 30 %. The boot of a VM writes its Pod 9 times, 293 KiB in total.",
		} {
			Expect(string(html)).To(ContainSubstring(conclusion))
		}
	})

	It("shows the values of earlier results", func() {
		results := completeResults()
		results.History = []report.Earlier{{Commit: "bc3d676", Date: "2026-11-27", Values: map[string]float64{"info/curl_wall": 0.43}}}
		html, err := Render(results)
		Expect(err).NotTo(HaveOccurred())
		Expect(string(html)).To(ContainSubstring(`<tr><td>bc3d676<td class="left">2026-11-27<td>0.43<td>`))
	})

	It("omits parts that were not measured", func() {
		html, err := Render(&report.Results{})
		Expect(err).NotTo(HaveOccurred())
		Expect(strings.Count(string(html), "<h2>")).To(BeZero())
	})

	It("has no external resources", func() {
		html, err := Render(completeResults())
		Expect(err).NotTo(HaveOccurred())
		Expect(string(html)).NotTo(MatchRegexp(`https?://|src=|@import|<link|<script`))
	})
})

var _ = Describe("An axis", func() {
	It("has round ticks at equal distances", func() {
		Expect(tickLabels(linearAxis(47, 0, 100))).To(Equal([]string{"0", "10", "20", "30", "40"}))
	})

	It("contains all its values if it is logarithmic", func() {
		a := logarithmicAxis(8, 260, 0, 340)
		Expect(a.At(8)).To(BeNumerically(">", 0))
		Expect(a.At(260)).To(BeNumerically("<", 340))
		Expect(tickLabels(a)).To(Equal([]string{"10", "20", "50", "100", "200"}))
	})
})

func tickLabels(a axis) []string {
	var labels []string
	for _, t := range a.ticks() {
		labels = append(labels, t.Text)
	}
	return labels
}

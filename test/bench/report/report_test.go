package report

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestFigures(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "report of the benchmark")
}

var _ = Describe("A distribution", func() {
	It("has an interpolated median and quartiles", func() {
		d := Distribution{4, 1, 3, 2}
		Expect(d.Median()).To(Equal(2.5))
		lower, upper := d.Quartiles()
		Expect(lower).To(Equal(1.75))
		Expect(upper).To(Equal(3.25))
		Expect(d).To(Equal(Distribution{4, 1, 3, 2}), "the order of the runs is unchanged")
	})

	It("has the quantile 0 if it is empty, and its value if it has only one", func() {
		Expect(Distribution{}.Median()).To(BeZero())
		Expect(Distribution{7}.Quantile(0.9)).To(Equal(7.0))
	})
})

// resultsWith returns results with a method that takes this CPU time and sends these requests, and with the CPU time of curl.
func resultsWith(cpu, curl Distribution, requests ...string) *Results {
	method := Method{Name: "has_vm", Requests: requests, Cost: Cost{CPU: cpu}}
	return &Results{
		Calls: []ProgramCost{{Name: Curl, Cost: Cost{CPU: curl}}},
		Scale: []ScaleResult{{Name: "one namespace", VMs: 10, Methods: []Method{method}}},
	}
}

var _ = Describe("A comparison", func() {
	baseline := resultsWith(Distribution{10, 11, 12}, Distribution{20, 20, 20}, "get pods")

	It("finds no regression in equal results, in better results and in noise", func() {
		Expect(Regressions(baseline, baseline)).To(BeEmpty())
		Expect(Regressions(baseline, resultsWith(Distribution{5, 5, 5}, Distribution{20}))).To(BeEmpty())
		Expect(Regressions(baseline, resultsWith(Distribution{12, 12.5, 13}, Distribution{20}, "get pods"))).To(BeEmpty())
		Expect(Regressions(baseline, resultsWith(Distribution{9, 10, 20, 30, 31}, Distribution{20}, "get pods"))).To(BeEmpty(), "overlapping quartiles")
	})

	It("finds methods that take more CPU time or send more requests", func() {
		Expect(Regressions(baseline, resultsWith(Distribution{20, 21, 22}, Distribution{20}, "get pods"))).To(
			ConsistOf("has_vm (one namespace, 10 VMs) takes 21.0 ms of CPU time, 11.0 before"))
		Expect(Regressions(baseline, resultsWith(Distribution{10, 11, 12}, Distribution{20}, "get pods", "list pods"))).To(
			ConsistOf(ContainSubstring("sends 2 requests, 1 before")))
	})

	It("adjusts for a slower host by the CPU time of curl", func() {
		Expect(Regressions(baseline, resultsWith(Distribution{20, 21, 22}, Distribution{40}, "get pods"))).To(BeEmpty())
	})

	It("ignores parts that only one of the results contains", func() {
		Expect(Regressions(&Results{}, baseline)).To(BeEmpty())
		Expect(Regressions(baseline, &Results{})).To(BeEmpty())
	})
})

var _ = Describe("Results", func() {
	It("are unchanged after writing and reading, and nil if the file does not exist", func() {
		path := filepath.Join(GinkgoT().TempDir(), "results.json")
		Expect(Read(path)).To(BeNil())
		written := resultsWith(Distribution{1.5, 2}, Distribution{3}, "get pods")
		Expect(written.Write(path)).To(Succeed())
		Expect(Read(path)).To(Equal(written))
	})

	It("have a line for each object without lists and objects", func() {
		path := filepath.Join(GinkgoT().TempDir(), "results.json")
		Expect((&Results{Objects: []Object{{Name: "VM Pod", Bytes: 1}}}).Write(path)).To(Succeed())
		Expect(os.ReadFile(path)).To(ContainSubstring("\n  { \"name\": \"VM Pod\", \"bytes\": 1 }\n"))
	})

	It("reports which goals are met", func() {
		cost := func(wall, cpu, peak float64) Cost {
			return Cost{Distribution{wall}, Distribution{cpu}, Distribution{peak}}
		}
		results := &Results{
			BinarySizeMiB: 11, Calls: []ProgramCost{{Info, cost(4, 6, 9)}, {HasVM, cost(8, 8, 13)}, {Curl, cost(10, 10, 9)}},
			Deploys: []Deploy{{VMs: 20, Seconds: 5, Bare: 4}, {VMs: 100, Seconds: 6, Bare: 4}},
			Node: &Node{
				BareEnd: Distribution{200}, InitStart: Distribution{100}, ClientStart: Distribution{126}, BootCPU: Distribution{130}, DiskPodStart: Distribution{100},
				DiskPodEnd: Distribution{200}, Create: Distribution{132}, Attach: Distribution{116}, Detach: Distribution{120}, Delete: Distribution{101},
			},
		}
		met := map[string]bool{}
		for _, goal := range results.Goals() {
			met[goal.Name] = goal.Met()
		}
		Expect(met).To(Equal(map[string]bool{
			"info/curl_wall": true, "info/curl_cpu": false, "has_vm/curl_wall": true, "has_vm/curl_cpu": false, "has_vm_peak_mib": false, "binary_mib": true,
			"deploy_20/client_wall": false, "deploy_100/client_wall": false,
			"create_vm/client_start": true, "client_start/init_start": false, "boot_cpu_ms": false, "attach_disk/disk_pod_start": false,
			"detach_disk/disk_pod_end": true, "delete_vm/bare_end": false,
		}))
		Expect((&Results{}).Goals()).To(BeEmpty())
	})
})

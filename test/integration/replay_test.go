package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// testdata/scenarios.json holds what a real director sent to a recording CPI, and what that answered.
type recorded struct {
	Command string `json:"command"`
	Calls   []struct {
		Request map[string]any  `json:"request"`
		Result  json.RawMessage `json:"recorded_result"`
	} `json:"calls"`
}

var _ = Describe("What a real director sends", Ordered, func() {
	var (
		w       world
		renamed = map[string]string{} // recorded CIDs and ours
	)
	BeforeAll(func(ctx context.Context) { w = newWorld(ctx) })

	raw, err := os.ReadFile("testdata/scenarios.json")
	if err != nil {
		panic(err)
	}
	var steps []recorded
	if err := json.Unmarshal(raw, &steps); err != nil {
		panic(err)
	}
	for _, step := range steps {
		It("when the operator runs "+step.Command, func(ctx context.Context) {
			for _, call := range step.Calls {
				method := call.Request["method"].(string)
				if version, ok := call.Request["api_version"].(float64); ok && version > 2 {
					call.Request["api_version"] = 2 // info never offered more
				}
				meet(ctx, w, call.Request, renamed)
				request, err := json.Marshal(call.Request)
				Expect(err).NotTo(HaveOccurred())
				for theirs, ours := range renamed {
					request = bytes.ReplaceAll(request, []byte(`"`+theirs+`"`), []byte(`"`+ours+`"`))
				}
				response, err := w.Raw(ctx, request)
				Expect(err).NotTo(HaveOccurred())
				Expect(response.Error).To(BeNil(), "%s: %s", method, request)
				sameShape(method, call.Result, response.Result, renamed)
			}
		})
	}

	It("is left with the disks that nobody deleted, free of machines", func(ctx context.Context) {
		Eventually(w.objects).WithContext(ctx).Should(HaveEach(HavePrefix("PersistentVolumeClaim/")))
		Expect(w.objects(ctx)).NotTo(BeEmpty())
	})
})

// meet finds out which of our machines a recorded one stands for whose creation was not recorded: the
// one that the named disk is attached to, or else any that is left.
func meet(ctx context.Context, w world, request map[string]any, renamed map[string]string) {
	GinkgoHelper()
	arguments := request["arguments"].([]any)
	if len(arguments) == 0 {
		return
	}
	theirs, ok := arguments[0].(string)
	if !ok || !strings.HasPrefix(theirs, "vm-") || renamed[theirs] != "" {
		return
	}
	which := "bosh.cloudfoundry.org/role=vm"
	if len(arguments) == 2 {
		if disk, ok := arguments[1].(string); ok {
			which = "bosh.cloudfoundry.org/disk=" + renamed[disk]
		}
	}
	pods, err := cluster.CoreV1().Pods(w.namespace).List(ctx, metav1.ListOptions{LabelSelector: which})
	Expect(err).NotTo(HaveOccurred())
	Expect(pods.Items).NotTo(BeEmpty(), "no machine is left that could stand for %s", theirs)
	renamed[theirs] = pods.Items[0].Labels["bosh.cloudfoundry.org/vm"]
}

// sameShape compares our answer with the recorded one, and learns which of our CIDs stands for theirs.
func sameShape(method string, theirs, ours json.RawMessage, renamed map[string]string) {
	GinkgoHelper()
	switch method {
	case "create_vm":
		var their, our []json.RawMessage
		Expect(json.Unmarshal(theirs, &their)).To(Succeed())
		Expect(json.Unmarshal(ours, &our)).To(Succeed())
		Expect(our).To(HaveLen(2))
		renamed[text(their[0])] = text(our[0])
		Expect(our[1]).To(MatchJSON(their[1]), "the networks")
	case "create_disk", "create_stemcell", "snapshot_disk":
		renamed[text(theirs)] = text(ours)
	case "attach_disk":
		var hint map[string]string
		Expect(json.Unmarshal(ours, &hint)).To(Succeed())
		Expect(hint["path"]).To(HavePrefix("/dev/"))
	case "info":
		var info struct {
			APIVersion int      `json:"api_version"`
			Formats    []string `json:"stemcell_formats"`
		}
		Expect(json.Unmarshal(ours, &info)).To(Succeed())
		Expect(info.APIVersion).To(Equal(2))
		Expect(info.Formats).To(ContainElement("kubernetes-light"))
	case "has_vm", "has_disk":
		// The recording CPI was told what to answer; ours tells what is there.
		Expect([]string{"true", "false"}).To(ContainElement(string(ours)))
	default:
		Expect(ours).To(MatchJSON(theirs), method)
	}
}

func text(raw json.RawMessage) string { return strings.Trim(string(raw), `"`) }

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
type recordedCommand struct {
	Command string `json:"command"`
	Calls   []struct {
		Request map[string]any  `json:"request"`
		Result  json.RawMessage `json:"recorded_result"`
	} `json:"calls"`
}

var _ = Describe("What a real director sends", Ordered, func() {
	var (
		env    testEnv
		cidMap = map[string]string{} // recorded CIDs and ours
	)
	BeforeAll(func(ctx context.Context) { env = newTestEnv(ctx) })

	raw, err := os.ReadFile("testdata/scenarios.json")
	if err != nil {
		panic(err)
	}
	var steps []recordedCommand
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
				mapRecordedVM(ctx, env, call.Request, cidMap)
				request, err := json.Marshal(call.Request)
				Expect(err).NotTo(HaveOccurred())
				for recordedCID, actualCID := range cidMap {
					request = bytes.ReplaceAll(request, []byte(`"`+recordedCID+`"`), []byte(`"`+actualCID+`"`))
				}
				response, err := env.CallRaw(ctx, request)
				Expect(err).NotTo(HaveOccurred())
				Expect(response.Error).To(BeNil(), "%s: %s", method, request)
				compareResults(method, call.Result, response.Result, cidMap)
			}
		})
	}

	It("is left with the disks that nobody deleted, free of machines", func(ctx context.Context) {
		Eventually(env.listObjects).WithContext(ctx).Should(HaveEach(HavePrefix("PersistentVolumeClaim/")))
		Expect(env.listObjects(ctx)).NotTo(BeEmpty())
	})
})

// mapRecordedVM finds out which of our machines a recorded one stands for whose creation was not recorded: the
// one that the named disk is attached to, or else any that is left.
func mapRecordedVM(ctx context.Context, env testEnv, request map[string]any, cidMap map[string]string) {
	GinkgoHelper()
	arguments := request["arguments"].([]any)
	if len(arguments) == 0 {
		return
	}
	recordedCID, ok := arguments[0].(string)
	if !ok || !strings.HasPrefix(recordedCID, "vm-") || cidMap[recordedCID] != "" {
		return
	}
	selector := "bosh.cloudfoundry.org/role=vm"
	if len(arguments) == 2 {
		if disk, ok := arguments[1].(string); ok {
			selector = "bosh.cloudfoundry.org/disk=" + cidMap[disk]
		}
	}
	pods, err := cluster.CoreV1().Pods(env.namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	Expect(err).NotTo(HaveOccurred())
	Expect(pods.Items).NotTo(BeEmpty(), "no machine is left that could stand for %s", recordedCID)
	cidMap[recordedCID] = pods.Items[0].Labels["bosh.cloudfoundry.org/vm"]
}

// compareResults compares our answer with the recorded one, and learns which of our CIDs stands for theirs.
func compareResults(method string, recorded, actual json.RawMessage, cidMap map[string]string) {
	GinkgoHelper()
	switch method {
	case "create_vm":
		var recordedParts, actualParts []json.RawMessage
		Expect(json.Unmarshal(recorded, &recordedParts)).To(Succeed())
		Expect(json.Unmarshal(actual, &actualParts)).To(Succeed())
		Expect(actualParts).To(HaveLen(2))
		cidMap[unquote(recordedParts[0])] = unquote(actualParts[0])
		Expect(actualParts[1]).To(MatchJSON(recordedParts[1]), "the networks")
	case "create_disk", "create_stemcell", "snapshot_disk":
		cidMap[unquote(recorded)] = unquote(actual)
	case "attach_disk":
		var hint map[string]string
		Expect(json.Unmarshal(actual, &hint)).To(Succeed())
		Expect(hint["path"]).To(HavePrefix("/dev/"))
	case "info":
		var info struct {
			APIVersion int      `json:"api_version"`
			Formats    []string `json:"stemcell_formats"`
		}
		Expect(json.Unmarshal(actual, &info)).To(Succeed())
		Expect(info.APIVersion).To(Equal(2))
		Expect(info.Formats).To(ContainElement("kubernetes-light"))
	case "has_vm", "has_disk":
		// The recording CPI was told what to answer; ours tells what is there.
		Expect([]string{"true", "false"}).To(ContainElement(string(actual)))
	default:
		Expect(actual).To(MatchJSON(recorded), method)
	}
}

func unquote(raw json.RawMessage) string { return strings.Trim(string(raw), `"`) }

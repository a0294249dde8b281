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

// recordedCommand is a command in testdata/scenarios.json, with the requests that a real director sent to a recording CPI, and the results
// that this CPI returned.
type recordedCommand struct {
	Command string `json:"command"`
	Calls   []struct {
		Request map[string]any  `json:"request"`
		Result  json.RawMessage `json:"recorded_result"`
	} `json:"calls"`
}

var _ = Describe("The recorded calls of a real director", Ordered, func() {
	var (
		env    testEnv
		cidMap = map[string]string{} // our CIDs by recorded CID
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
		It("succeed for "+step.Command, func(ctx context.Context) {
			for _, call := range step.Calls {
				method := call.Request["method"].(string)
				if version, ok := call.Request["api_version"].(float64); ok && version > 2 {
					call.Request["api_version"] = 2 // info offers no later version
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

	It("leave only the disks that no call deleted", func(ctx context.Context) {
		Eventually(env.listObjects).WithContext(ctx).Should(HaveEach(HavePrefix("PersistentVolumeClaim/")))
		Expect(env.listObjects(ctx)).NotTo(BeEmpty())
	})
})

// mapRecordedVM selects one of our VMs for a recorded VM without a recorded create_vm: the VM that has the named disk, or the first VM.
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
	Expect(pods.Items).NotTo(BeEmpty(), "there is no VM to use for %s", recordedCID)
	cidMap[recordedCID] = pods.Items[0].Labels["bosh.cloudfoundry.org/vm"]
}

// compareResults compares our result with the recorded one, and adds new CIDs to cidMap.
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
		// The recording CPI returned fixed results; ours depend on the cluster.
		Expect([]string{"true", "false"}).To(ContainElement(string(actual)))
	default:
		Expect(actual).To(MatchJSON(recorded), method)
	}
}

func unquote(raw json.RawMessage) string { return strings.Trim(string(raw), `"`) }

package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
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

// These sequences are like those of a director of version 283.1.6.
var _ = Describe("A director", func() {
	attachedDisks := func(ctx context.Context, env testEnv, vm string) (disks []string) {
		GinkgoHelper()
		Expect(json.Unmarshal(env.mustCall(ctx, "get_disks", vm).Result, &disks)).To(Succeed())
		return disks
	}

	It("replaces a VM with create-swap-delete, and deletes the orphaned VM later", func(ctx context.Context) {
		env, orphan, disk := newTestEnvWithAttachedDisk(ctx)
		vm := env.createVM(ctx, "two", disk)
		env.mustCall(ctx, "detach_disk", orphan, disk)
		env.mustCall(ctx, "attach_disk", vm, disk)
		Expect(attachedDisks(ctx, env, orphan)).To(BeEmpty())

		env.mustCall(ctx, "delete_vm", orphan)
		Expect(attachedDisks(ctx, env, vm)).To(ConsistOf(disk))
	})

	It("repeats a deploy that was canceled while it replaced a disk", func(ctx context.Context) {
		env, vm, disk := newTestEnvWithAttachedDisk(ctx)
		canceled := env.createDisk(ctx)
		env.mustCall(ctx, "attach_disk", vm, canceled)

		env.mustCall(ctx, "detach_disk", vm, canceled) // the director detaches and orphans inactive disks
		next := env.createDisk(ctx)
		env.mustCall(ctx, "attach_disk", vm, next)
		env.mustCall(ctx, "detach_disk", vm, disk)
		Expect(attachedDisks(ctx, env, vm)).To(ConsistOf(next))
		env.mustCall(ctx, "delete_disk", canceled)
	})

	It("recovers a VM after its Pod was deleted, with its address and its disk", func(ctx context.Context) {
		env := newTestEnv(ctx)
		createVM := func(agent string, disks ...string) string {
			env.mustCall(ctx, "create_vm", agent, stemcellCID, map[string]any{}, manualNetwork("10.9.8.7"), append([]string{}, disks...), map[string]any{})
			return "agent-" + agent
		}
		vm, disk := createVM("one"), env.createDisk(ctx)
		env.mustCall(ctx, "attach_disk", vm, disk)
		env.deletePodAndWait(ctx, vm)

		Expect(env.mustCall(ctx, "has_vm", vm).Result).To(MatchJSON("false"))
		env.mustCall(ctx, "delete_vm", vm)
		recovered := createVM("two", disk)
		env.mustCall(ctx, "attach_disk", recovered, disk)
		Expect(attachedDisks(ctx, env, recovered)).To(ConsistOf(disk))
	})

	It("creates and deletes 12 VMs with six workers", func(ctx context.Context) {
		env := newTestEnv(ctx)
		run := func(method string, arguments func(n int) []any) {
			GinkgoHelper()
			var workers errgroup.Group
			workers.SetLimit(6)
			for n := range 12 {
				workers.Go(func() error {
					response, err := env.Call(ctx, method, arguments(n)...)
					if err == nil && response.Error != nil {
						err = errors.New(response.Error.Message)
					}
					return err
				})
			}
			Expect(workers.Wait()).To(Succeed())
		}
		run("create_vm", func(n int) []any {
			return []any{strconv.Itoa(n), stemcellCID, map[string]any{}, manualNetwork("10.9.8." + strconv.Itoa(100+n)), []string{}, map[string]any{}}
		})
		run("delete_vm", func(n int) []any { return []any{"agent-" + strconv.Itoa(n)} })
		Eventually(env.listObjects).WithContext(ctx).Should(BeEmpty(), "Kubernetes deletes the Secrets after the Pods")
	})
})

// mapRecordedVM selects one of our VMs for a recorded VM without a recorded create_vm: the VM that has the named disk, or the first VM.
func mapRecordedVM(ctx context.Context, env testEnv, request map[string]any, cidMap map[string]string) {
	GinkgoHelper()
	arguments := request["arguments"].([]any)
	if len(arguments) == 0 {
		return
	}
	if request["method"] == "create_vm" {
		cidMap[arguments[1].(string)] = stemcellCID // of another CPI
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

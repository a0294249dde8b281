package collect

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
)

// Known contains the CIDs of the VMs and disks that a director knows. A nil Known means that they are unknown to garbage collection.
type Known map[string]bool

// knownCommands are the commands of the BOSH CLI that together list all VMs and disks of a director, by the content of their tables.
// vms and instances print a table for each deployment, the others one table.
var knownCommands = map[string]string{
	"vms":          "bosh vms --json",
	"orphaned_vms": "bosh orphaned-vms --json",
	"instances":    "bosh instances --details --json",
	"disks":        "bosh disks --orphaned --json",
}

// boshOutput is the output of a command of the BOSH CLI with --json. A field with several values has one on each line.
type boshOutput struct {
	Tables []struct {
		Content string
		Header  map[string]string
		Rows    []map[string]string
	}
}

// ReadKnown reads the outputs of all knownCommands. It fails if one is missing or incomplete, because then known VMs or disks would seem
// to be unknown.
func ReadKnown(from io.Reader) (Known, error) {
	known, tables, empty := Known{}, map[string]int{}, 0
	for decoder := json.NewDecoder(from); ; {
		var output boshOutput
		err := decoder.Decode(&output)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("not the output of bosh with --json: %w", err)
		}
		if len(output.Tables) == 0 {
			empty++
		}
		for _, table := range output.Tables {
			if _, hasDisks := table.Header["disk_cids"]; table.Content != "instances" || hasDisks {
				tables[table.Content]++
			}
			known.add(table.Rows)
		}
	}
	const deploymentCommands = 2 // vms and instances have no table if the director has no deployment
	noDeployments := tables["vms"] == 0 && tables["instances"] == 0 && empty == deploymentCommands
	var incomplete []string
	for content, command := range knownCommands {
		isPerDeployment := content == "vms" || content == "instances"
		if isPerDeployment && tables["vms"] != tables["instances"] || tables[content] == 0 && !(isPerDeployment && noDeployments) {
			incomplete = append(incomplete, command)
		}
	}
	if len(incomplete) > 0 {
		slices.Sort(incomplete)
		return nil, fmt.Errorf("the output of these commands is missing or incomplete: %s", strings.Join(incomplete, ", "))
	}
	return known, nil
}

func (known Known) add(rows []map[string]string) {
	for _, row := range rows {
		for _, field := range row {
			for value := range strings.FieldsSeq(field) {
				known[value] = true
			}
		}
	}
}

// addUnknown adds the VMs and disks that the director does not know, without a remedy: their data may still be necessary. It omits VMs
// without metadata, which addVMOrphans adds, and copies and dynamic disks, which the director does not list.
func (inv inventory) addUnknown(scan *orphanScan) {
	if inv.known == nil {
		return
	}
	addVM := func(object metav1.Object, vmPod manifest.VMPod) {
		if vmPod.HasMetadata() && !inv.known[vmPod.Name] {
			scan.add(object, "the director does not know VM "+vmPod.Describe()+"; to delete it, run "+
				call.DeleteVMCommand(vmPod.Deployment(), vmPod.Name), nil)
		}
	}
	for _, vmPod := range manifest.VMPods(inv.pods) {
		addVM(vmPod.Pod, vmPod)
	}
	for _, template := range inv.podTemplates {
		if !slices.ContainsFunc(inv.pods, func(pod *corev1.Pod) bool { return kube.IsOwnedBy(pod, template.UID) }) {
			addVM(template, manifest.PodFromTemplate(template, ""))
		}
	}
	for _, pvc := range inv.disks {
		if inv.known[pvc.Name] || pvc.IsDynamic() {
			continue
		}
		remedy := "to use it, run `bosh attach-disk`; if its data is not necessary, delete the PVC"
		if vmCID := manifest.VMOf(pvc); vmCID != "" {
			remedy = "VM " + vmCID + " has it"
		}
		scan.add(pvc.PVC, "the director does not know the disk; "+remedy, nil)
	}
}

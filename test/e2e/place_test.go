//go:build e2e

package e2e

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/kube/manifest"
	"bosh-kubernetes-cpi/test/embedded"
)

// place is where a world's machines are made.
type place struct {
	node node
	// powerCut takes the node's power away and has it boot, until it is ready.
	powerCut    func(ctx context.Context) error
	properties  map[string]any                        // cloud_properties of each machine
	classes     string                                // what the names of the CSI driver's classes end in
	driver      string                                // the CSI driver's name
	beforeAgent func(ctx context.Context, m *machine) // what is done to each machine before its agent answers; nothing, if nil
	timeouts    map[string]any                        // of the CPI
}

// node is what specs do with the machines' node.
type node interface {
	Shell(ctx context.Context, command string) (string, error)
	Ctr(ctx context.Context, args ...string) (string, error)
	RestartKubelet(ctx context.Context) error
	Loops(ctx context.Context) ([]string, error)
	KubeletRoot() string
}

// onVMNode reports whether all machines are to be made on the node that is a computer, with ON=vm-node. Specs with the label
// this-machine are about what the other nodes have, or do to them what cannot be done to it.
var onVMNode = os.Getenv("ON") == "vm-node"

const thisMachine = "this-machine"

// longTest is how long a spec with machines may take.
var longTest = func() time.Duration {
	if onVMNode {
		return time.Hour
	}
	return 10 * time.Minute
}()

// onThisMachine is the first of the nodes that share this machine's kernel.
func (w *world) onThisMachine() place {
	first := w.embedded.Nodes[0]
	return place{
		node: first,
		powerCut: func(ctx context.Context) error {
			if err := first.PowerOff(ctx); err != nil {
				return err
			}
			if err := os.RemoveAll(filepath.Join(manifest.NodeDirectory, w.namespace)); err != nil { // a computer's memory
				return err
			}
			return first.PowerOn(ctx, true)
		},
		driver:   embedded.CSIDriverName,
		timeouts: map[string]any{"create_vm": "3m", "attach_disk": "2m", "detach_disk": "5m", "delete_vm": "2m"},
	}
}

// onComputer is the node that is a computer, which is slow.
func (w *world) onComputer() place {
	computer := w.embedded.VM
	return place{
		node: computer,
		powerCut: func(ctx context.Context) error {
			if err := computer.Stop(ctx); err != nil {
				return err
			}
			return computer.Start(ctx)
		},
		properties: map[string]any{
			"memory":      512,
			"zone":        strings.Replace(embedded.VMNodeName, "node-", "zone-", 1),
			"tolerations": []map[string]any{{"key": embedded.VMTaint, "operator": "Exists"}},
		},
		classes: embedded.VMClasses,
		driver:  embedded.VMCSIDriverName,
		beforeAgent: func(ctx context.Context, m *machine) {
			Expect(m.pod(ctx).Spec.NodeName).To(Equal(embedded.VMNodeName))
			// The agent starts auditd, which ends on this kernel: it has no audit.
			m.run(ctx, "sed -i /auditd/d /var/vcap/bosh/bin/bosh-start-logging-and-auditing")
		},
		timeouts: map[string]any{"create_vm": "20m", "attach_disk": "10m", "detach_disk": "10m", "delete_vm": "10m", "update_disk": "20m", "other": "10m"},
	}
}

// disks are the cloud_properties of a disk with the name that its StorageClass has in this place.
func (p place) disks(properties map[string]any) map[string]any {
	class, ok := properties["storage_class"].(string)
	if !ok || p.classes == "" || class != embedded.CSIClass && !strings.HasPrefix(class, embedded.CSIClass+"-") {
		return properties
	}
	own := maps.Clone(properties)
	own["storage_class"] = class + p.classes
	return own
}

// newVMWorld is a world for machines on the node that is a computer, whatever the others are on.
func newVMWorld(ctx context.Context) *world {
	GinkgoHelper()
	w := newWorldAt(ctx, (*world).onComputer, nil)
	if _, err := w.embedded.ControlPlane.Kubectl(ctx, "get", "node", embedded.VMNodeName); err != nil {
		Skip("the cluster has no node that is a computer: make cluster-up VM_NODE=1")
	}
	setPatience(true)
	DeferCleanup(setPatience, onVMNode)
	return w
}

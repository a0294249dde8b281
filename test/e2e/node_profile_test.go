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

// nodeProfile is where a world's machines are made.
type nodeProfile struct {
	node nodeOperations
	// powerCut takes the node's power away and has it boot, until it is ready.
	powerCut           func(ctx context.Context) error
	properties         map[string]any                        // cloud_properties of each machine
	storageClassSuffix string                                // what the names of the CSI driver's classes end in
	csiDriver          string                                // the CSI driver's name
	prepareVM          func(ctx context.Context, vm *testVM) // what is done to each machine before its agent answers; nothing, if nil
	timeouts           map[string]any                        // of the CPI
}

// nodeOperations is what specs do with the machines' node.
type nodeOperations interface {
	Shell(ctx context.Context, command string) (string, error)
	Ctr(ctx context.Context, args ...string) (string, error)
	RestartKubelet(ctx context.Context) error
	LoopDevices(ctx context.Context) ([]string, error)
	KubeletRoot() string
}

// onVMNode reports whether all machines are to be made on the node that is a computer, with ON=vm-node. Specs with the label
// this-machine are about what the other nodes have, or do to them what cannot be done to it.
var onVMNode = os.Getenv("ON") == "vm-node"

const labelSharedKernel = "this-machine"

// longTest is how long a spec with machines may take.
var longTest = func() time.Duration {
	if onVMNode {
		return time.Hour
	}
	return 10 * time.Minute
}()

// sharedKernelProfile is the first of the nodes that share this machine's kernel.
func (env *testEnv) sharedKernelProfile() nodeProfile {
	first := env.embedded.Nodes[0]
	return nodeProfile{
		node: first,
		powerCut: func(ctx context.Context) error {
			if err := first.PowerOff(ctx); err != nil {
				return err
			}
			if err := os.RemoveAll(filepath.Join(manifest.NodeDirectory, env.namespace)); err != nil { // a computer's memory
				return err
			}
			return first.PowerOn(ctx, true)
		},
		csiDriver: embedded.CSIDriverName,
		timeouts:  map[string]any{"create_vm": "3m", "attach_disk": "2m", "detach_disk": "5m", "delete_vm": "2m"},
	}
}

// vmNodeProfile is the node that is a computer, which is slow.
func (env *testEnv) vmNodeProfile() nodeProfile {
	vmNode := env.embedded.VM
	return nodeProfile{
		node: vmNode,
		powerCut: func(ctx context.Context) error {
			if err := vmNode.Stop(ctx); err != nil {
				return err
			}
			return vmNode.Start(ctx)
		},
		properties: map[string]any{
			"memory":      512,
			"zone":        strings.Replace(embedded.VMNodeName, "node-", "zone-", 1),
			"tolerations": []map[string]any{{"key": embedded.VMTaint, "operator": "Exists"}},
		},
		storageClassSuffix: embedded.VMClassSuffix,
		csiDriver:          embedded.VMCSIDriverName,
		prepareVM: func(ctx context.Context, vm *testVM) {
			Expect(vm.pod(ctx).Spec.NodeName).To(Equal(embedded.VMNodeName))
			// The agent starts auditd, which ends on this kernel: it has no audit.
			vm.run(ctx, "sed -i /auditd/d /var/vcap/bosh/bin/bosh-start-logging-and-auditing")
		},
		timeouts: map[string]any{"create_vm": "20m", "attach_disk": "10m", "detach_disk": "10m", "delete_vm": "10m", "update_disk": "20m", "other": "10m"},
	}
}

// diskProperties are the cloud_properties of a disk with the name that its StorageClass has in this place.
func (p nodeProfile) diskProperties(properties map[string]any) map[string]any {
	storageClass, ok := properties["storage_class"].(string)
	if !ok || p.storageClassSuffix == "" || storageClass != embedded.CSIClass && !strings.HasPrefix(storageClass, embedded.CSIClass+"-") {
		return properties
	}
	adapted := maps.Clone(properties)
	adapted["storage_class"] = storageClass + p.storageClassSuffix
	return adapted
}

// newVMNodeEnv is a world for machines on the node that is a computer, whatever the others are on.
func newVMNodeEnv(ctx context.Context) *testEnv {
	GinkgoHelper()
	env := newTestEnvOn(ctx, (*testEnv).vmNodeProfile, nil)
	if _, err := env.embedded.ControlPlane.Kubectl(ctx, "get", "node", embedded.VMNodeName); err != nil {
		Skip("the cluster has no node that is a computer: make cluster-up VM_NODE=1")
	}
	setEventuallyDefaults(true)
	DeferCleanup(setEventuallyDefaults, onVMNode)
	return env
}

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

	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/test/harness/embedded"
)

// nodeProfile describes the node for the VMs of a testEnv.
type nodeProfile struct {
	node nodeOperations
	// powerCut cuts the node's power, boots it, and waits until it is ready.
	powerCut           func(ctx context.Context) error
	properties         map[string]any                        // cloud_properties of each VM
	storageClassSuffix string                                // suffix of the names of the CSI driver's classes
	csiDriver          string                                // name of the CSI driver
	prepareVM          func(ctx context.Context, vm *testVM) // called for each VM before its agent responds; may be nil
	timeouts           map[string]any                        // timeouts of the CPI
}

// nodeOperations are the operations of specs on the VMs' node.
type nodeOperations interface {
	Shell(ctx context.Context, command string) (string, error)
	Ctr(ctx context.Context, args ...string) (string, error)
	RestartKubelet(ctx context.Context) error
	LoopDevices(ctx context.Context) ([]string, error)
	KubeletRoot() string
}

// onVMNode is set if all VMs are created on the VM node, with ON=vm-node. Specs with the label shared-kernel do not run there: they
// test properties that only the other nodes have, or operations that the VM node does not support.
var onVMNode = os.Getenv("ON") == "vm-node"

const labelSharedKernel = "shared-kernel"

// longTest is the timeout of a spec with VMs.
var longTest = func() time.Duration {
	if onVMNode {
		return time.Hour
	}
	return 10 * time.Minute
}()

// sharedKernelProfile returns the profile of the first node that shares the host's kernel.
func (env *testEnv) sharedKernelProfile() nodeProfile {
	first := env.embedded.Nodes[0]
	return nodeProfile{
		node: first,
		powerCut: func(ctx context.Context) error {
			if err := first.PowerOff(ctx); err != nil {
				return err
			}
			if err := os.RemoveAll(filepath.Join(manifest.NodeDirectory, env.namespace)); err != nil { // in memory on a real node
				return err
			}
			return first.PowerOn(ctx, true)
		},
		csiDriver: embedded.CSIDriverName,
		timeouts:  map[string]any{"create_vm": "3m", "attach_disk": "2m", "detach_disk": "5m", "delete_vm": "2m"},
	}
}

// vmNodeProfile returns the profile of the VM node, which is slow.
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
			// The agent starts auditd. On this kernel, auditd exits, because the kernel does not support auditing.
			vm.run(ctx, "sed -i /auditd/d /var/vcap/bosh/bin/bosh-start-logging-and-auditing")
		},
		timeouts: map[string]any{"create_vm": "20m", "attach_disk": "10m", "detach_disk": "10m", "delete_vm": "10m", "other": "10m"},
	}
}

// diskProperties returns the cloud_properties of a disk, with the name that its StorageClass has for this node.
func (p nodeProfile) diskProperties(properties map[string]any) map[string]any {
	storageClass, ok := properties["storage_class"].(string)
	if !ok || p.storageClassSuffix == "" || storageClass != embedded.CSIClass && !strings.HasPrefix(storageClass, embedded.CSIClass+"-") {
		return properties
	}
	adapted := maps.Clone(properties)
	adapted["storage_class"] = storageClass + p.storageClassSuffix
	return adapted
}

// newVMNodeEnv returns a testEnv for VMs on the VM node, even without ON=vm-node.
func newVMNodeEnv(ctx context.Context) *testEnv {
	GinkgoHelper()
	env := newTestEnvOn(ctx, (*testEnv).vmNodeProfile, nil)
	if _, err := env.embedded.ControlPlane.Kubectl(ctx, "get", "node", embedded.VMNodeName); err != nil {
		Skip("the cluster has no VM node; run make cluster-up VM_NODE=1")
	}
	setEventuallyDefaults(true)
	DeferCleanup(setEventuallyDefaults, onVMNode)
	return env
}

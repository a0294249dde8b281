package simulated

import (
	_ "embed"
	"os"
	"path/filepath"

	"bosh-kubernetes-cpi/test/harness/embedded"
)

// kwokStages define how the nodes change the status of Pods.
//
//go:embed kwok.yaml
var kwokStages []byte

// StartNodes starts kwok, which simulates all nodes of the control plane, including nodes created later. kwok exits with this process.
func StartNodes(plane *embedded.ControlPlane) (embedded.Process, error) {
	config := filepath.Join(plane.Dir, "kwok.yaml")
	if err := os.WriteFile(config, kwokStages, 0o644); err != nil {
		return embedded.Process{}, err
	}
	kwok := embedded.Process{Name: "kwok", Dir: plane.Dir, Child: true, Args: []string{
		"kwok", "--kubeconfig", plane.Kubeconfig("admin"), "--manage-all-nodes", "--config", config,
		"--server-address", "", "--node-ip", "192.0.2.1", "--cidr", "10.1.0.0/16", "--node-lease-duration-seconds", "40"}}
	return kwok, kwok.Start()
}

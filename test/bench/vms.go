package main

import (
	"context"

	"bosh-kubernetes-cpi/test/bench/benchenv"
	"bosh-kubernetes-cpi/test/bench/report"
)

const stemcell = "registry.example.com/stemcell@sha256:a6d0d69aa6bdc68c5e74c2430be2143d749ea8b5826b510f887aea3cdcedc02e"

func dynamicNetwork() map[string]any {
	return map[string]any{"default": map[string]any{
		"type": "dynamic", "cloud_properties": map[string]any{}, "dns": []string{}, "default": []string{"dns", "gateway"}}}
}

// vmKind contains the arguments of create_vm that differ between kinds of VMs.
type vmKind struct {
	properties, env map[string]any
}

// plainVM returns the kind of a typical VM in an instance group.
func plainVM() vmKind {
	return vmKind{map[string]any{"cpu": "100m", "memory": 64}, map[string]any{"bosh": map[string]any{"group": "director-cf-api"}}}
}

func createVM(ctx context.Context, d benchenv.Director, agentID string, kind vmKind, diskCIDs ...string) (report.Usage, error) {
	return d.Call(ctx, nil, "create_vm", agentID, stemcell, kind.properties, dynamicNetwork(), append([]string{}, diskCIDs...), kind.env)
}

func createDisk(ctx context.Context, d benchenv.Director) (diskCID string, usage report.Usage, err error) {
	usage, err = d.Call(ctx, &diskCID, "create_disk", 64, map[string]any{}, nil)
	return diskCID, usage, err
}

func vmCID(agentID string) string { return "agent-" + agentID }

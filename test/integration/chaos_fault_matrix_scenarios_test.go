package integration

import (
	"context"
	"maps"
	"slices"
)

// scenario is a call with its setup and the inverse call. A test case injects one fault at one request of the call.
type scenario struct {
	name     string
	strategy string         // key of diskStrategies
	disk     map[string]any // cloud_properties of a disk with a volume; nil for no disk
	core     bool           // most deploys make this call
	selected bool           // the seed of this run selects it

	setup         func(ctx context.Context, s *scenarioEnv) // once
	beforeCall    func(ctx context.Context, s *scenarioEnv) // before each call
	call          func(s *scenarioEnv) []any                // method and arguments
	doneError     string                                    // the error type of a retried call that finds nothing to do
	notIdempotent bool                                      // a second call creates another object
	undo          func(ctx context.Context, s *scenarioEnv) // the inverse call, which succeeds if there is nothing to undo
}

// scenarios returns the scenarios of all methods that send requests to the API server.
func scenarios() []scenario {
	return slices.Concat(vmScenarios(), createVMScenarios(), attachmentScenarios(), diskScenarios())
}

// fixedCall returns the call for a scenario without subjects.
func fixedCall(arguments ...any) func(*scenarioEnv) []any {
	return func(*scenarioEnv) []any { return arguments }
}

func vmScenarios() []scenario {
	calls := []scenario{
		{name: "has_vm", call: func(s *scenarioEnv) []any { return []any{"has_vm", s.vm} }},
		{name: "has_vm of an unknown VM", call: fixedCall("has_vm", "agent-none")},
		{name: "set_vm_metadata", call: func(s *scenarioEnv) []any {
			return []any{"set_vm_metadata", s.vm, map[string]any{"job": "web", "director": "d"}}
		}},
		{name: "reboot_vm", call: func(s *scenarioEnv) []any { return []any{"reboot_vm", s.vm} }},
	}
	for _, strategy := range []string{"", recreateStrategy} {
		calls = append(calls, scenario{
			name: "delete_vm with a disk" + strategy, strategy: strategy, disk: map[string]any{}, doneError: "VMNotFound", core: strategy == "",
			beforeCall: func(ctx context.Context, s *scenarioEnv) {
				s.subject = s.createVM(ctx, s.nextSubject(), s.disk)
				s.mustCall(ctx, "attach_disk", s.subject, s.disk)
			},
			call: func(s *scenarioEnv) []any { return []any{"delete_vm", s.subject} },
		})
	}
	return append(calls, scenario{name: "reboot_vm" + recreateStrategy, strategy: recreateStrategy, call: func(s *scenarioEnv) []any { return []any{"reboot_vm", s.vm} }})
}

// createVMScenario returns the scenario of a create_vm. It adds extraProperties to the cloud_properties of the environment.
func createVMScenario(name, strategy string, networks func() map[string]any, extraProperties, env map[string]any) scenario {
	return scenario{
		name: "create_vm " + name + strategy, strategy: strategy,
		beforeCall: func(_ context.Context, s *scenarioEnv) { s.subject = s.nextSubject() },
		call: func(s *scenarioEnv) []any {
			properties := maps.Clone(s.testEnv.vmProperties)
			maps.Copy(properties, extraProperties)
			return []any{"create_vm", s.subject, stemcellCID, properties, networks(), []string{}, env}
		},
		undo: func(ctx context.Context, s *scenarioEnv) {
			s.mustRetry(ctx, "VMNotFound", "delete_vm", "agent-"+s.subject)
		},
	}
}

func createVMScenarios() []scenario {
	secret := map[string]any{"bosh": map[string]any{"password": canaryFor("env")}}
	grouped := map[string]any{"bosh": map[string]any{"group": groupName}}
	withDisk := createVMScenario("with a disk", "", dynamicNetwork, nil, secret)
	withDisk.disk = map[string]any{}
	call := withDisk.call
	withDisk.call = func(s *scenarioEnv) []any {
		arguments := call(s)
		arguments[5] = []string{s.disk}
		return arguments
	}
	plain := createVMScenario("on a dynamic network", "", dynamicNetwork, nil, secret)
	plain.core = true
	return []scenario{
		plain,
		createVMScenario("on a manual network", "", func() map[string]any { return manualNetwork("10.9.8.7") }, nil, secret),
		createVMScenario("behind a Service", "", dynamicNetwork, servicesProperties(map[string]any{"ports": []any{80}}), secret),
		createVMScenario("behind a shared Service", "", dynamicNetwork, servicesProperties(namedService(nil)), secret),
		createVMScenario("in a group with a PodDisruptionBudget", "", dynamicNetwork, maxOneUnavailable(), grouped),
		createVMScenario("on a dynamic network", recreateStrategy, dynamicNetwork, nil, secret),
		createVMScenario("behind a shared Service", recreateStrategy, dynamicNetwork, servicesProperties(namedService(nil)), secret),
		withDisk,
	}
}

func attachmentScenarios() []scenario {
	var calls []scenario
	for _, variant := range []scenario{
		{disk: map[string]any{}},
		{name: " on a device", disk: map[string]any{"volume_mode": "Block"}},
		{name: recreateStrategy, disk: map[string]any{}, strategy: recreateStrategy},
		{name: " as a directory", disk: map[string]any{"volume_mode": "Filesystem"}, strategy: recreateStrategy},
	} {
		attach := func(ctx context.Context, s *scenarioEnv) { s.mustCall(ctx, "attach_disk", s.vm, s.disk) }
		detach := func(ctx context.Context, s *scenarioEnv) {
			s.mustRetry(ctx, "DiskNotAttached", "detach_disk", s.vm, s.disk)
		}
		core := variant.name == ""
		calls = append(calls,
			scenario{
				name: "attach_disk" + variant.name, strategy: variant.strategy, disk: variant.disk, core: core,
				call: func(s *scenarioEnv) []any { return []any{"attach_disk", s.vm, s.disk} }, undo: detach,
			},
			scenario{
				name: "detach_disk" + variant.name, strategy: variant.strategy, disk: variant.disk, core: core, doneError: "DiskNotAttached",
				beforeCall: attach, call: func(s *scenarioEnv) []any { return []any{"detach_disk", s.vm, s.disk} },
			},
			scenario{
				name: "get_disks" + variant.name, strategy: variant.strategy, disk: variant.disk, setup: attach,
				call: func(s *scenarioEnv) []any { return []any{"get_disks", s.vm} },
			})
	}
	return calls
}

func diskScenarios() []scenario {
	snapshot := func(ctx context.Context, s *scenarioEnv) {
		s.subject = s.mustCall(ctx, "snapshot_disk", s.disk, map[string]any{}).Text()
	}
	deleteSnapshots := func(ctx context.Context, s *scenarioEnv) {
		for _, name := range s.listSnapshots(ctx) {
			s.mustCall(ctx, "delete_snapshot", name)
		}
	}
	attach := func(ctx context.Context, s *scenarioEnv) { s.mustCall(ctx, "attach_disk", s.vm, s.disk) }
	noProperties := map[string]any{}
	return []scenario{
		{name: "create_disk", notIdempotent: true, call: fixedCall("create_disk", 64, noProperties, nil), undo: func(ctx context.Context, s *scenarioEnv) { s.deleteNewDisks(ctx) }},
		{
			name: "delete_disk", doneError: "DiskNotFound",
			beforeCall: func(ctx context.Context, s *scenarioEnv) { s.subject = s.createDisk(ctx) },
			call:       func(s *scenarioEnv) []any { return []any{"delete_disk", s.subject} },
		},
		{name: "has_disk", disk: noProperties, call: func(s *scenarioEnv) []any { return []any{"has_disk", s.disk} }},
		{name: "set_disk_metadata", disk: noProperties, call: func(s *scenarioEnv) []any {
			return []any{"set_disk_metadata", s.disk, map[string]any{"job": "web"}}
		}},
		{
			name: "resize_disk", disk: map[string]any{"storage_class": "growing"},
			beforeCall: func(_ context.Context, s *scenarioEnv) { s.nextSubject() },
			call:       func(s *scenarioEnv) []any { return []any{"resize_disk", s.disk, 64 + 8*s.subjectCount} },
		},
		{
			name: "update_disk in place", disk: map[string]any{"storage_class": "growing"},
			beforeCall: func(_ context.Context, s *scenarioEnv) { s.nextSubject() },
			call: func(s *scenarioEnv) []any {
				return []any{"update_disk", s.disk, 64 + 8*s.subjectCount, map[string]any{"storage_class": "growing", "labels": map[string]any{"team": "a"}}}
			},
		},
		{
			name: "snapshot_disk of an attached disk", disk: noProperties, notIdempotent: true, setup: attach,
			call: func(s *scenarioEnv) []any { return []any{"snapshot_disk", s.disk, map[string]any{}} }, undo: deleteSnapshots,
		},
		{
			name: "delete_snapshot", disk: noProperties, beforeCall: snapshot,
			call: func(s *scenarioEnv) []any { return []any{"delete_snapshot", s.subject} },
		},
	}
}

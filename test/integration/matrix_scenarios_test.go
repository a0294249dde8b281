package integration

import (
	"context"
	"maps"

	. "github.com/onsi/gomega"
)

// scenario is a call in its setting, and what undoes it. Each of its requests is disturbed in each way, one at a time.
type scenario struct {
	name  string
	kind  string         // of kinds: how disks come to its machines
	disk  map[string]any // cloud_properties of the stage's own disk, which has a volume; nil for none
	alone bool           // it changes what all namespaces share
	core  bool           // it is what deploys are made of
	drawn bool           // by this run's seed

	setup func(ctx context.Context, s *stage) // once
	begin func(ctx context.Context, s *stage) // before each call
	call  func(s *stage) []any                // method and arguments
	done  string                              // the type of error with which a repeated call says that all is done
	once  bool                                // a second call is not the same call: it would make another disk
	undo  func(ctx context.Context, s *stage) // the inverse call, which finds nothing to do where the call did nothing
}

const recreated = " with disk_strategy: recreate"

// scenarios are all methods that speak to the API server, with what can be different about them.
func scenarios() []scenario {
	all := append(scenariosOfMachines(), scenariosOfNewMachines()...)
	all = append(all, scenariosOfAttachments()...)
	all = append(append(all, scenariosOfDisks()...), scenariosOfNetworks()...)
	return append(all, scenariosOfStemcells()...)
}

func calls(arguments ...any) func(*stage) []any { return func(*stage) []any { return arguments } }

func scenariosOfMachines() []scenario {
	all := []scenario{
		{name: "has_vm", call: func(s *stage) []any { return []any{"has_vm", s.vm} }},
		{name: "has_vm of none", call: calls("has_vm", "agent-none")},
		{name: "set_vm_metadata", call: func(s *stage) []any {
			return []any{"set_vm_metadata", s.vm, map[string]any{"job": "web", "director": "d"}}
		}},
		{name: "reboot_vm", call: func(s *stage) []any { return []any{"reboot_vm", s.vm} }},
	}
	for _, kind := range []string{"", recreated} {
		all = append(all, scenario{
			name: "delete_vm with a disk" + kind, kind: kind, disk: map[string]any{}, done: "VMNotFound", core: kind == "",
			begin: func(ctx context.Context, s *stage) {
				s.subject = s.createVM(ctx, s.next(), s.disk)
				s.must(ctx, "attach_disk", s.subject, s.disk)
			},
			call: func(s *stage) []any { return []any{"delete_vm", s.subject} },
		})
	}
	return append(all, scenario{name: "reboot_vm" + recreated, kind: recreated, call: func(s *stage) []any { return []any{"reboot_vm", s.vm} }})
}

// creating is create_vm with these cloud_properties beside the stage's own.
func creating(name, kind string, networks func() map[string]any, properties, env map[string]any) scenario {
	return scenario{
		name: "create_vm " + name + kind, kind: kind,
		begin: func(_ context.Context, s *stage) { s.subject = s.next() },
		call: func(s *stage) []any {
			all := maps.Clone(s.world.vm)
			maps.Copy(all, properties)
			return []any{"create_vm", s.subject, stemcellCID, all, networks(), []string{}, env}
		},
		undo: func(ctx context.Context, s *stage) { s.repeats(ctx, "VMNotFound", "delete_vm", "agent-"+s.subject) },
	}
}

func scenariosOfNewMachines() []scenario {
	secret := map[string]any{"bosh": map[string]any{"password": planted("env")}}
	grouped := map[string]any{"bosh": map[string]any{"group": group}}
	near := creating("near its disk", "", onDynamic, nil, secret)
	near.disk = map[string]any{}
	call := near.call
	near.call = func(s *stage) []any {
		arguments := call(s)
		arguments[5] = []string{s.disk}
		return arguments
	}
	plain := creating("on a dynamic network", "", onDynamic, nil, secret)
	plain.core = true
	return []scenario{
		plain,
		creating("on a manual network", "", func() map[string]any { return manual("10.9.8.7") }, nil, secret),
		creating("behind a Service of its own", "", onDynamic, behind(map[string]any{"ports": []any{80}}), secret),
		creating("behind a shared Service", "", onDynamic, behind(fixed(nil)), secret),
		creating("in a group with a budget", "", onDynamic, oneAway(), grouped),
		creating("on a dynamic network", recreated, onDynamic, nil, secret),
		creating("behind a shared Service", recreated, onDynamic, behind(fixed(nil)), secret),
		near,
	}
}

func scenariosOfAttachments() []scenario {
	var all []scenario
	for _, setting := range []scenario{
		{disk: map[string]any{}},
		{name: " on a device", disk: map[string]any{"volume_mode": "Block"}},
		{name: " as directory", disk: map[string]any{"attach": "bind"}},
		{name: recreated, disk: map[string]any{}, kind: recreated},
	} {
		attach := func(ctx context.Context, s *stage) { s.must(ctx, "attach_disk", s.vm, s.disk) }
		detach := func(ctx context.Context, s *stage) { s.repeats(ctx, "DiskNotAttached", "detach_disk", s.vm, s.disk) }
		core := setting.name == ""
		all = append(all,
			scenario{
				name: "attach_disk" + setting.name, kind: setting.kind, disk: setting.disk, core: core,
				call: func(s *stage) []any { return []any{"attach_disk", s.vm, s.disk} }, undo: detach,
			},
			scenario{
				name: "detach_disk" + setting.name, kind: setting.kind, disk: setting.disk, core: core, done: "DiskNotAttached",
				begin: attach, call: func(s *stage) []any { return []any{"detach_disk", s.vm, s.disk} },
			},
			scenario{
				name: "get_disks" + setting.name, kind: setting.kind, disk: setting.disk, setup: attach,
				call: func(s *stage) []any { return []any{"get_disks", s.vm} },
			})
	}
	return all
}

func scenariosOfDisks() []scenario {
	snapshot := func(ctx context.Context, s *stage) {
		s.subject = s.must(ctx, "snapshot_disk", s.disk, map[string]any{}).Text()
	}
	removeSnapshots := func(ctx context.Context, s *stage) {
		for _, each := range s.snapshots(ctx) {
			s.must(ctx, "delete_snapshot", each)
		}
	}
	attach := func(ctx context.Context, s *stage) { s.must(ctx, "attach_disk", s.vm, s.disk) }
	any64 := map[string]any{}
	return []scenario{
		{name: "create_disk", once: true, call: calls("create_disk", 64, any64, nil), undo: func(ctx context.Context, s *stage) { s.removeDisks(ctx) }},
		{
			name: "delete_disk", done: "DiskNotFound",
			begin: func(ctx context.Context, s *stage) { s.subject = s.createDisk(ctx) },
			call:  func(s *stage) []any { return []any{"delete_disk", s.subject} },
		},
		{name: "has_disk", disk: any64, call: func(s *stage) []any { return []any{"has_disk", s.disk} }},
		{name: "set_disk_metadata", disk: any64, call: func(s *stage) []any {
			return []any{"set_disk_metadata", s.disk, map[string]any{"job": "web"}}
		}},
		{
			name: "resize_disk", disk: map[string]any{"storage_class": "growing"},
			begin: func(_ context.Context, s *stage) { s.next() },
			call:  func(s *stage) []any { return []any{"resize_disk", s.disk, 64 + 8*s.made} },
		},
		{
			name: "update_disk in place", disk: map[string]any{"storage_class": "growing"},
			begin: func(_ context.Context, s *stage) { s.next() },
			call: func(s *stage) []any {
				return []any{"update_disk", s.disk, 64 + 8*s.made, map[string]any{"storage_class": "growing", "labels": map[string]any{"team": "a"}}}
			},
		},
		{
			name:  "update_disk to another kind of volume",
			begin: func(ctx context.Context, s *stage) { s.subject = s.usedDisk(ctx, s.vm, any64) },
			call:  func(s *stage) []any { return []any{"update_disk", s.subject, 64, toBlock} },
			undo:  func(ctx context.Context, s *stage) { s.removeDisks(ctx) },
		},
		{
			name: "snapshot_disk of an attached disk", disk: any64, once: true, setup: attach,
			call: func(s *stage) []any { return []any{"snapshot_disk", s.disk, map[string]any{}} }, undo: removeSnapshots,
		},
		{
			name: "delete_snapshot", disk: any64, begin: snapshot,
			call: func(s *stage) []any { return []any{"delete_snapshot", s.subject} },
		},
	}
}

func scenariosOfNetworks() []scenario {
	calico := func(ctx context.Context, _ *stage) {
		Expect(plane.Apply(ctx, calicoResource("IPPool")+"---"+calicoResource("IPReservation"))).To(Succeed())
		_, err := plane.Kubectl(ctx, "wait", "--for=condition=Established", "--timeout=30s", "crd", "--all")
		Expect(err).NotTo(HaveOccurred())
	}
	wanted := map[string]any{"type": "manual", "range": "10.77.0.0/24", "gateway": "10.77.0.1", "cloud_properties": map[string]any{"calico": "ip_pool"}}
	const cid = "bosh-pool-10-77-0-0-24"
	return []scenario{
		{
			name: "create_network", alone: true, setup: calico, call: calls("create_network", wanted),
			undo: func(ctx context.Context, s *stage) { s.repeats(ctx, "NetworkNotFound", "delete_network", cid) },
		},
		{
			name: "delete_network", alone: true, done: "NetworkNotFound", setup: calico,
			begin: func(ctx context.Context, s *stage) { s.must(ctx, "create_network", wanted) },
			call:  calls("delete_network", cid),
		},
	}
}

// scenariosOfStemcells are about those whose images nodes pull: the others need no cluster, or only look there.
func scenariosOfStemcells() []scenario {
	wanted := func(ctx context.Context, s *stage) { s.Director = s.prefetching(ctx, enabled, nil) }
	create, remove := calls("create_stemcell", "image", light), calls("delete_stemcell", stemcellCID)
	return []scenario{
		{
			name: "create_stemcell that nodes pull", setup: wanted, call: create,
			undo: func(ctx context.Context, s *stage) { s.must(ctx, "delete_stemcell", stemcellCID) },
		},
		{
			name: "delete_stemcell that nodes pull", setup: wanted, call: remove,
			begin: func(ctx context.Context, s *stage) { s.must(ctx, "create_stemcell", "image", light) },
		},
	}
}

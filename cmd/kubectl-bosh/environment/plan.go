package environment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"

	"bosh-kubernetes-cpi/cmd/kubectl-bosh/cluster"
)

// Plan is what is going to be in the folder, and why.
type Plan struct {
	Settings
	Vars      Vars
	Decisions []cluster.Fact
	// NamespaceLabel is the command by which the namespace comes to allow VM Pods; "" where it stays as it is.
	NamespaceLabel string

	found   *cluster.Found
	options Options
	changed []string // names of variables that have other values than in the folder
	again   bool     // the folder has a plan already
}

// Addresses finds addresses that nobody has.
type Addresses interface {
	FreeServiceAddress(ctx context.Context, found *cluster.Found) (string, error)
	FreePodAddress(ctx context.Context, of cluster.Range, first int) (string, error)
}

// Offsets in the range of static addresses: the gateway, which no Pod uses, the director, and the last one that a cloud
// config leaves alone.
const (
	gatewayOffset  = 1
	directorOffset = 6
	reservedOffset = 20
)

// Decide returns the plan for the folder: what is in it stays, unless an option says something else.
func Decide(ctx context.Context, folder Folder, options Options, found *cluster.Found, free Addresses) (*Plan, error) {
	if err := options.Validate(); err != nil {
		return nil, err
	}
	p := &Plan{found: found, options: options}
	var err error
	if p.Settings, p.again, err = folder.Settings(); err != nil {
		return nil, err
	}
	if p.Vars, err = folder.Vars(); err != nil {
		return nil, err
	}
	p.Cluster = options.Cluster
	p.decideNamespace()
	if p.again {
		err = p.decideAgain(folder)
	} else {
		err = p.decideFirst(ctx, free)
	}
	return p, err
}

func (p *Plan) decide(what, said string) {
	p.Decisions = append(p.Decisions, cluster.Fact{What: what, Said: said})
}

// decideNamespace says what becomes of the namespace. That it refuses VM Pods is changed by nothing but a flag.
func (p *Plan) decideNamespace() {
	existing := p.found.Namespace
	switch {
	case !existing.Known:
	case !existing.Exists:
		p.NamespaceLabel = "kubectl label namespace " + p.namespace() + " " + privilegedLabel
		p.decide("namespace", "created with "+privilegedLabel+", since VM Pods are privileged")
	case p.options.AllowPrivileged && existing.PodSecurity != cluster.Privileged:
		p.NamespaceLabel = "kubectl label --overwrite namespace " + p.namespace() + " " + privilegedLabel
		p.decide("namespace", "gets "+privilegedLabel+" in place of "+cmp.Or(existing.PodSecurity, "no such label")+
			", as --allow-privileged-namespace says; down restores that")
	case existing.RefusesVMs():
		p.decide("namespace", "refuses VM Pods by its label; nothing is done unless --allow-privileged-namespace is given")
	}
}

const privilegedLabel = cluster.PodSecurity + "=" + cluster.Privileged

// namespace is the director's, which is settled before the plan is.
func (p *Plan) namespace() string { return cmp.Or(p.Namespace, p.options.Namespace) }

func (p *Plan) decideFirst(ctx context.Context, free Addresses) error {
	o := p.options
	if o.Release == "" || o.Stemcell == "" {
		return errors.New("give --release (as `make release` makes it) and --stemcell (a light stemcell), each as a path or a URL")
	}
	p.Director, p.Namespace = o.Director, o.Namespace
	p.Vars["director_name"], p.Vars["namespace"] = o.Director, o.Namespace
	p.OpsFiles = []string{"cpi.yml"}
	if err := p.decideNetwork(ctx, free); err != nil {
		return err
	}
	if err := p.decideCredentials(); err != nil {
		return err
	}
	if o.ReleaseSHA1 != "" || o.StemcellSHA1 != "" {
		if o.ReleaseSHA1 == "" || o.StemcellSHA1 == "" {
			return errors.New("give --release-sha1 and --stemcell-sha1 both, or neither")
		}
		p.OpsFiles = append(p.OpsFiles, "checksums.yml")
	}
	for i, name := range p.OpsFiles {
		p.OpsFiles[i] = opsFolder + "/" + name
	}
	return p.take()
}

// take puts in what the operator gives by name.
func (p *Plan) take() error {
	manifest, err := p.options.manifest()
	if err != nil {
		return err
	}
	if manifest != "" {
		p.Manifest = manifest
	}
	if p.Manifest == "" {
		return errors.New("which manifest? Give --bosh-deployment, the folder of a checkout of " +
			"https://github.com/cloudfoundry/bosh-deployment, or --manifest")
	}
	for _, each := range p.options.OpsFiles {
		path, err := filepath.Abs(each)
		if err != nil {
			return err
		}
		if !slices.Contains(p.OpsFiles, path) {
			p.OpsFiles = append(p.OpsFiles, path)
		}
	}
	given, err := p.options.vars()
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if there, known := p.Vars[name]; known && fmt.Sprint(there) == fmt.Sprint(given[name]) {
			continue
		}
		p.Vars[name] = given[name]
		p.changed = append(p.changed, name)
	}
	return nil
}

// decideAgain goes by what is in the folder. Another network, or another namespace, would be another director.
func (p *Plan) decideAgain(folder Folder) error {
	o := p.options
	for _, each := range []struct{ flag, given, kept string }{
		{"--name", o.Director, p.Director}, {"--namespace", o.Namespace, p.Namespace}, {"--network", o.Network, p.Network},
		{"--range", o.Range, p.Vars.Text("internal_cidr")}, {"--address", o.Address, p.Vars.Text("internal_ip")},
		{"--credentials", o.Credentials, p.Credentials},
	} {
		if each.given != "" && each.given != each.kept {
			return fmt.Errorf("%s has a director with %s %s, and not %s: take another folder (--dir), or change its files by hand",
				folder.Path, each.flag, each.kept, each.given)
		}
	}
	p.decide("all", "as "+folder.in(settingsFile)+" and "+folder.in(varsFile)+" have it")
	if err := p.take(); err != nil {
		return err
	}
	for _, name := range p.changed {
		p.decide(name, "as it is given now") // without its value, which may be secret
	}
	return p.decideKubeconfig(folder)
}

// decideKubeconfig says what of the kubeconfig's content makes create-env recreate the director's VM.
func (p *Plan) decideKubeconfig(folder Folder) error {
	director, err := folder.Director()
	if err != nil || director == "" {
		return err
	}
	const recreates = "; create-env recreates the director's VM, because the manifest holds the kubeconfig"
	former, err := folder.formerly()
	if err != nil {
		return err
	}
	if former != "" {
		p.decide(kubeconfigFile, "the folder was in "+filepath.Dir(former)+" before"+recreates)
	}
	if p.options.ReplaceServer {
		p.decide(kubeconfigFile, "the API server of your kubeconfig, as --replace-server says"+recreates)
	}
	return nil
}

func (p *Plan) decideNetwork(ctx context.Context, free Addresses) error {
	plugin := p.found.Plugin
	kept, why := p.keptRange()
	switch {
	case p.options.Network == Service:
		return p.behindService(ctx, free, "as --network says")
	case kept != nil:
		return p.atStatic(ctx, free, *kept, why)
	case p.options.Network == Static:
		return errors.New("--network static takes a range whose addresses the network plugin gives on request, and to nobody else: " +
			"give it with --range (docs/networks.md, Keeping a range for BOSH)")
	case plugin.Name == "":
		return p.behindService(ctx, free, "which network plugin there is is not known, and whether it gives addresses on request")
	case plugin.Annotation == "":
		return p.behindService(ctx, free, plugin.Name+" gives no address on request")
	}
	return p.behindService(ctx, free, plugin.Name+" gives addresses on request, but no range of them is kept for that: "+
		"any Pod could have the director's (docs/networks.md, Keeping a range for BOSH; then --network static, or --range)")
}

// keptRange is the range of static addresses, and why there are such.
func (p *Plan) keptRange() (kept *cluster.Range, why string) {
	switch {
	case p.options.Range != "":
		return &cluster.Range{Prefix: netip.MustParsePrefix(p.options.Range)}, "--range says so"
	case len(p.found.Kept) > 0:
		first := p.found.Kept[0]
		return &first, p.found.Plugin.Name + " gives addresses on request, and " + first.By + " keeps " + first.String() + " for that"
	}
	return nil, ""
}

func (p *Plan) atStatic(ctx context.Context, free Addresses, kept cluster.Range, why string) error {
	address := p.options.Address
	if address == "" {
		var err error
		if address, err = free.FreePodAddress(ctx, kept, directorOffset); err != nil {
			return err
		}
	}
	if parsed, err := netip.ParseAddr(address); err != nil || !kept.Contains(parsed) {
		return fmt.Errorf("--address %s is not in the range of static addresses, %s", address, kept)
	}
	p.Network = Static
	p.Vars["internal_ip"], p.Vars["internal_cidr"], p.Vars["internal_gw"] = address, kept.String(), kept.Nth(gatewayOffset)
	p.decide("network", Static+": "+why)
	p.decide("address", address+", the director's Pod's own, whichever it is")
	if plugin := p.found.Plugin; plugin.Annotation != "" && plugin.Name != cluster.Calico {
		p.OpsFiles = append(p.OpsFiles, "address-annotations.yml")
		p.Vars["address_annotations"] = []any{map[string]any{"name": plugin.Annotation, "value": `{{join .IPs ","}}`}}
		p.decide("annotation", plugin.Annotation+", which "+plugin.Name+" reads")
	}
	return nil
}

func (p *Plan) behindService(ctx context.Context, free Addresses, why string) error {
	address := p.options.Address
	if address == "" {
		var err error
		if address, err = free.FreeServiceAddress(ctx, p.found); err != nil {
			return err
		}
	}
	p.Network = Service
	p.OpsFiles = append(p.OpsFiles, "service.yml")
	p.Vars["internal_ip"] = address
	p.decide("network", Service+": "+why)
	p.decide("address", address+", of the Service bosh-director, which stays when the director's VM is made anew")
	return nil
}

func (p *Plan) decideCredentials() error {
	if p.options.Credentials != Kubeconfig {
		p.Credentials = InCluster
		p.OpsFiles = append(p.OpsFiles, "in-cluster.yml")
		p.decide("credentials", InCluster+": the director works by the service account of its Pod, whose token the cluster renews")
		return nil
	}
	if p.found.API == "" {
		return errors.New("--credentials kubeconfig takes the API server's address as Pods reach it, which was not found: " +
			"use in-cluster, or write a kubeconfig yourself (manifests/director-kubeconfig.yml)")
	}
	p.Credentials = Kubeconfig
	p.OpsFiles = append(p.OpsFiles, "director-kubeconfig.yml")
	p.decide("credentials", Kubeconfig+": a token that does not end, for "+p.found.API)
	return nil
}

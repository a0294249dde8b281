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

// Plan is the desired content of the folder, with the reasons.
type Plan struct {
	Settings
	Vars      Vars
	Decisions []cluster.Fact
	// LabelCommand is the command that labels the namespace to admit VM Pods; "" if the label is not changed.
	LabelCommand string

	inspection  *cluster.Inspection
	options     Options
	changedVars []string // names of variables with other values than in the folder
	exists      bool     // whether the folder has recorded decisions
}

// AddressFinder finds addresses that are not in use.
type AddressFinder interface {
	FindFreeServiceAddress(ctx context.Context, inspection *cluster.Inspection) (string, error)
	FindFreePodAddress(ctx context.Context, reserved cluster.ReservedRange, first int) (string, error)
}

// Offsets in the reserved range: of the gateway, which Pods do not use, of the director, and of the last address that the cloud config
// reserves.
const (
	gatewayOffset  = 1
	directorOffset = 6
	reservedOffset = 20
)

// NewPlan returns the plan for the folder. It keeps recorded decisions, unless an option changes them.
func NewPlan(ctx context.Context, folder Folder, options Options, inspection *cluster.Inspection, addresses AddressFinder) (*Plan, error) {
	if err := options.Validate(); err != nil {
		return nil, err
	}
	p := &Plan{inspection: inspection, options: options}
	var err error
	if p.Settings, p.exists, err = folder.Settings(); err != nil {
		return nil, err
	}
	if p.Vars, err = folder.Vars(); err != nil {
		return nil, err
	}
	p.Cluster = options.Cluster
	p.planNamespace()
	if p.exists {
		err = p.planExisting(folder)
	} else {
		err = p.planNew(ctx, addresses)
	}
	return p, err
}

func (p *Plan) addDecision(name, value string) {
	p.Decisions = append(p.Decisions, cluster.Fact{Name: name, Value: value})
}

// planNamespace decides on the namespace and its label for Pod Security. Only a flag changes the label of an existing namespace.
func (p *Plan) planNamespace() {
	existing := p.inspection.Namespace
	switch {
	case !existing.Known:
	case !existing.Exists:
		p.LabelCommand = "kubectl label namespace " + p.directorNamespace() + " " + privilegedLabel
		p.addDecision("namespace", "created with the label "+privilegedLabel+", because VM Pods are privileged")
	case p.options.AllowPrivileged && existing.PodSecurity != cluster.PodSecurityPrivileged:
		p.LabelCommand = "kubectl label --overwrite namespace " + p.directorNamespace() + " " + privilegedLabel
		p.addDecision("namespace", "gets the label "+privilegedLabel+" instead of "+cmp.Or(existing.PodSecurity, "none")+
			" (--allow-privileged-namespace); down restores it")
	case existing.RefusesVMs():
		p.addDecision("namespace", "its label refuses VM Pods; up stops without --allow-privileged-namespace")
	}
}

const privilegedLabel = cluster.PodSecurityLabel + "=" + cluster.PodSecurityPrivileged

// directorNamespace returns the recorded namespace, or that of the options.
func (p *Plan) directorNamespace() string { return cmp.Or(p.Namespace, p.options.Namespace) }

func (p *Plan) planNew(ctx context.Context, addresses AddressFinder) error {
	o := p.options
	if o.Release == "" || o.Stemcell == "" {
		return errors.New("--release and --stemcell are required for a new director: paths or URLs of the CPI release and a light stemcell")
	}
	p.Director, p.Namespace = o.Director, o.Namespace
	p.Vars["director_name"], p.Vars["namespace"] = o.Director, o.Namespace
	p.OpsFiles = []string{"cpi.yml"}
	if err := p.planNetwork(ctx, addresses); err != nil {
		return err
	}
	if err := p.planCredentials(); err != nil {
		return err
	}
	if o.ReleaseSHA1 != "" || o.StemcellSHA1 != "" {
		if o.ReleaseSHA1 == "" || o.StemcellSHA1 == "" {
			return errors.New("--release-sha1 and --stemcell-sha1 require each other; give both or neither")
		}
		p.OpsFiles = append(p.OpsFiles, "checksums.yml")
	}
	for i, name := range p.OpsFiles {
		p.OpsFiles[i] = opsFolder + "/" + name
	}
	return p.applyOptions()
}

// applyOptions applies the given manifest, ops files and variables.
func (p *Plan) applyOptions() error {
	manifest, err := p.options.manifestPath()
	if err != nil {
		return err
	}
	if manifest != "" {
		p.Manifest = manifest
	}
	if p.Manifest == "" {
		return errors.New("--bosh-deployment or --manifest is required: the folder of a checkout of " +
			"https://github.com/cloudfoundry/bosh-deployment, or a manifest")
	}
	for _, opsFile := range p.options.OpsFiles {
		path, err := filepath.Abs(opsFile)
		if err != nil {
			return err
		}
		if !slices.Contains(p.OpsFiles, path) {
			p.OpsFiles = append(p.OpsFiles, path)
		}
	}
	given, err := p.options.parseVars()
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if recorded, known := p.Vars[name]; known && fmt.Sprint(recorded) == fmt.Sprint(given[name]) {
			continue
		}
		p.Vars[name] = given[name]
		p.changedVars = append(p.changedVars, name)
	}
	return nil
}

// planExisting plans a director with recorded decisions. Some of them cannot be changed: that would be another director.
func (p *Plan) planExisting(folder Folder) error {
	o := p.options
	for _, fixed := range []struct{ flag, given, recorded string }{
		{"--name", o.Director, p.Director}, {"--namespace", o.Namespace, p.Namespace}, {"--network", o.Network, p.Network},
		{"--range", o.Range, p.Vars.Text("internal_cidr")}, {"--address", o.Address, p.Vars.Text("internal_ip")},
		{"--credentials", o.Credentials, p.Credentials},
	} {
		if fixed.given != "" && fixed.given != fixed.recorded {
			return fmt.Errorf("folder %s has a director with %s %s, not %s; use another folder (--dir), or edit its files",
				folder.Path, fixed.flag, fixed.recorded, fixed.given)
		}
	}
	p.addDecision("all", "as recorded in "+folder.filePath(settingsFile)+" and "+folder.filePath(varsFile))
	if err := p.applyOptions(); err != nil {
		return err
	}
	for _, name := range p.changedVars {
		p.addDecision(name, "changed by a flag") // without its value, which may be secret
	}
	return p.planKubeconfig(folder)
}

// planKubeconfig describes changes of the kubeconfig, which make create-env recreate the director's VM.
func (p *Plan) planKubeconfig(folder Folder) error {
	director, err := folder.DirectorUUID()
	if err != nil || director == "" {
		return err
	}
	const recreates = "; create-env recreates the director's VM, because the manifest contains the kubeconfig"
	previousPath, err := folder.previousTokenPath()
	if err != nil {
		return err
	}
	if previousPath != "" {
		p.addDecision(kubeconfigFile, "the folder was moved from "+filepath.Dir(previousPath)+recreates)
	}
	if p.options.ReplaceServer {
		p.addDecision(kubeconfigFile, "API server replaced with that of your kubeconfig (--replace-server)"+recreates)
	}
	return nil
}

func (p *Plan) planNetwork(ctx context.Context, addresses AddressFinder) error {
	plugin := p.inspection.NetworkPlugin
	reserved, why := p.reservedRange()
	switch {
	case p.options.Network == NetworkService:
		return p.useServiceAddress(ctx, addresses, "set by --network")
	case reserved != nil:
		return p.useStaticAddress(ctx, addresses, *reserved, why)
	case p.options.Network == NetworkStatic:
		return errors.New("--network static requires a reserved range, which the network plugin assigns on request only; " +
			"give it with --range (docs/networks.md, Reserved ranges)")
	case plugin.Name == "":
		return p.useServiceAddress(ctx, addresses, "the network plugin is unknown, and so is whether it assigns requested addresses")
	case plugin.Annotation == "":
		return p.useServiceAddress(ctx, addresses, plugin.Name+" does not assign requested addresses")
	}
	return p.useServiceAddress(ctx, addresses, plugin.Name+" assigns requested addresses, but without a reserved range "+
		"any Pod could get the director's; reserve one (docs/networks.md, Reserved ranges) and give it with --range")
}

// reservedRange returns the reserved range, and why it is used; nil if there is none.
func (p *Plan) reservedRange() (reserved *cluster.ReservedRange, why string) {
	switch {
	case p.options.Range != "":
		return &cluster.ReservedRange{Prefix: netip.MustParsePrefix(p.options.Range)}, "set by --range"
	case len(p.inspection.ReservedRanges) > 0:
		first := p.inspection.ReservedRanges[0]
		return &first, p.inspection.NetworkPlugin.Name + " assigns requested addresses, and " + first.Source +
			" reserves " + first.String()
	}
	return nil, ""
}

func (p *Plan) useStaticAddress(ctx context.Context, addresses AddressFinder, reserved cluster.ReservedRange, why string) error {
	address := p.options.Address
	if address == "" {
		var err error
		if address, err = addresses.FindFreePodAddress(ctx, reserved, directorOffset); err != nil {
			return err
		}
	}
	if parsed, err := netip.ParseAddr(address); err != nil || !reserved.Contains(parsed) {
		return fmt.Errorf("--address %s is not in the reserved range %s", address, reserved)
	}
	p.Network = NetworkStatic
	p.Vars["internal_ip"], p.Vars["internal_cidr"], p.Vars["internal_gw"] = address, reserved.String(), reserved.AddressAt(gatewayOffset)
	p.addDecision("network", NetworkStatic+": "+why)
	p.addDecision("address", address+", requested by each VM Pod of the director")
	if plugin := p.inspection.NetworkPlugin; plugin.Annotation != "" && plugin.Name != cluster.Calico {
		p.OpsFiles = append(p.OpsFiles, "address-annotations.yml")
		p.Vars["address_annotations"] = []any{map[string]any{"name": plugin.Annotation, "value": `{{join .IPs ","}}`}}
		p.addDecision("annotation", plugin.Annotation+", which "+plugin.Name+" reads")
	}
	return nil
}

func (p *Plan) useServiceAddress(ctx context.Context, addresses AddressFinder, why string) error {
	address := p.options.Address
	if address == "" {
		var err error
		if address, err = addresses.FindFreeServiceAddress(ctx, p.inspection); err != nil {
			return err
		}
	}
	p.Network = NetworkService
	p.OpsFiles = append(p.OpsFiles, "service.yml")
	p.Vars["internal_ip"] = address
	p.addDecision("network", NetworkService+": "+why)
	p.addDecision("address", address+" of Service bosh-director, which outlives the director's VM")
	return nil
}

func (p *Plan) planCredentials() error {
	if p.options.Credentials != CredentialsKubeconfig {
		p.Credentials = CredentialsInCluster
		p.OpsFiles = append(p.OpsFiles, "in-cluster.yml")
		p.addDecision("credentials",
			CredentialsInCluster+": the director uses the service account of its Pod, with a token that the cluster renews")
		return nil
	}
	if p.inspection.APIURL == "" {
		return errors.New("--credentials kubeconfig requires the in-cluster address of the API server, which is unknown; " +
			"use in-cluster, or write a kubeconfig yourself (manifests/director-kubeconfig.yml)")
	}
	p.Credentials = CredentialsKubeconfig
	p.OpsFiles = append(p.OpsFiles, "director-kubeconfig.yml")
	p.addDecision("credentials", CredentialsKubeconfig+": a token that does not expire, for "+p.inspection.APIURL)
	return nil
}

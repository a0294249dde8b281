package environment

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"

	"bosh-kubernetes-cpi/cmd/kubectl-bosh/cluster"
	"bosh-kubernetes-cpi/cpi/network"
)

// Plan is the desired content of the directory, with the reasons for the decisions.
type Plan struct {
	Settings
	Vars      Vars
	Decisions []cluster.ReportLine
	// LabelCommand is the command that labels the namespace to admit VM Pods, or "" if the label does not change.
	LabelCommand string

	inspection  *cluster.Inspection
	options     Options
	changedVars []string // names of variables with other values than the recorded ones
	exists      bool     // whether there are recorded decisions
}

// AddressFinder finds addresses that are not in use.
type AddressFinder interface {
	FindFreeServiceAddress(ctx context.Context, inspection *cluster.Inspection) (string, error)
	FindFreePodAddress(ctx context.Context, reserved network.AddressRange, firstOffset int) (string, error)
}

// Offsets in the reserved range.
const (
	gatewayOffset      = 1 // Pods do not use the gateway, but manual networks require one
	directorOffset     = 6
	lastReservedOffset = 20 // the cloud config reserves the addresses from gatewayOffset on
)

// NewPlan returns the plan for the directory. It keeps recorded decisions, unless an option changes them.
func NewPlan(ctx context.Context, dir Dir, options Options, inspection *cluster.Inspection, addresses AddressFinder) (*Plan, error) {
	if err := options.Validate(); err != nil {
		return nil, err
	}
	p := &Plan{inspection: inspection, options: options}
	var err error
	if p.Settings, p.exists, err = dir.ReadSettings(); err != nil {
		return nil, err
	}
	if p.Vars, err = dir.ReadVars(); err != nil {
		return nil, err
	}
	p.Cluster = options.Cluster
	p.planNamespace()
	if p.exists {
		err = p.planExisting(dir)
	} else {
		err = p.planNew(ctx, addresses)
	}
	if err != nil {
		return nil, err
	}
	err = p.planRestrictions(ctx, dir)
	return p, err
}

func (p *Plan) addDecision(name, value string) {
	p.Decisions = append(p.Decisions, cluster.ReportLine{Name: name, Value: value})
}

// planNamespace decides on the namespace and its label for Pod Security. Only a flag changes the label of an existing namespace.
func (p *Plan) planNamespace() {
	existing := p.inspection.Namespace
	switch {
	case !existing.Known && p.options.AllowPrivileged:
		p.addDecision("namespace", "you do not have permission to get it, so --allow-privileged-namespace has no effect")
	case !existing.Known:
	case !existing.Exists:
		p.LabelCommand = "kubectl label namespace " + p.directorNamespace() + " " + privilegedLabel
		p.addDecision("namespace", "created with the label "+privilegedLabel+", because VM Pods are privileged")
	case p.options.AllowPrivileged && existing.PodSecurity != cluster.PodSecurityPrivileged:
		p.LabelCommand = "kubectl label --overwrite namespace " + p.directorNamespace() + " " + privilegedLabel
		p.addDecision("namespace", "gets the label "+privilegedLabel+" instead of "+cmp.Or(existing.PodSecurity, "none")+
			" (--allow-privileged-namespace); down restores it")
	case existing.RejectsVMs():
		p.addDecision("namespace", "its label rejects VM Pods; up stops without --allow-privileged-namespace")
	}
}

const privilegedLabel = cluster.PodSecurityLabel + "=" + cluster.PodSecurityPrivileged

// directorNamespace returns the recorded namespace, or else the namespace of the options.
func (p *Plan) directorNamespace() string { return cmp.Or(p.Namespace, p.options.Namespace) }

func (p *Plan) planNew(ctx context.Context, addresses AddressFinder) error {
	o := &p.options
	if o.Release == "" {
		o.Release, o.ReleaseSHA1 = o.PublishedRelease.URL, o.PublishedRelease.Checksum
	}
	if o.Stemcell == "" {
		o.Stemcell, o.StemcellSHA1 = o.PublishedStemcell.URL, o.PublishedStemcell.Checksum
	}
	if o.Release == "" || o.Stemcell == "" {
		return errors.New("--release and --stemcell are required for a new director; " +
			"set them to paths or URLs of the CPI release and a light stemcell")
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
	for i, name := range p.OpsFiles {
		p.OpsFiles[i] = opsDir + "/" + name
	}
	return p.applyOptions()
}

// applyOptions applies the manifest, ops files and variables of the options.
func (p *Plan) applyOptions() error {
	manifest, err := p.options.manifestPath()
	if err != nil {
		return err
	}
	switch {
	case manifest != "":
		p.Manifest = manifest
	case p.options.UsePublished:
		p.Manifest = PublishedManifest
	}
	if p.Manifest == "" {
		return errors.New("--bosh-deployment or --manifest is required; set it to the directory of a checkout of " +
			"https://github.com/cloudfoundry/bosh-deployment, or to a manifest")
	}
	for _, opsFile := range p.options.OpsFiles {
		path, err := filepath.Abs(opsFile)
		if err != nil {
			return err
		}
		if isEmbedded(opsFile) {
			path = opsDir + "/" + opsFile
		}
		if !slices.Contains(p.OpsFiles, path) {
			p.OpsFiles = append(p.OpsFiles, path)
		}
	}
	vars, err := p.options.parseVars()
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		p.setVar(name, vars[name])
	}
	return p.planChecksums()
}

func (p *Plan) setVar(name string, value any) {
	if recorded, known := p.Vars[name]; known && equality.Semantic.DeepEqual(recorded, value) {
		return
	}
	p.Vars[name] = value
	p.changedVars = append(p.changedVars, name)
}

// planChecksums applies checksums.yml if the release or the stemcell has a checksum, and computes the other checksum, of a local file.
func (p *Plan) planChecksums() error {
	const opsFile = opsDir + "/checksums.yml"
	if !slices.Contains(p.OpsFiles, opsFile) {
		if p.options.ReleaseSHA1 == "" && p.options.StemcellSHA1 == "" {
			return nil
		}
		p.OpsFiles = slices.Insert(p.OpsFiles, min(1, len(p.OpsFiles)), opsFile) // directly after cpi.yml
	}
	for name, changed := range map[string]bool{
		"kubernetes_cpi": p.options.Release != "" && p.options.ReleaseSHA1 == "",
		"stemcell":       p.options.Stemcell != "" && p.options.StemcellSHA1 == "",
	} {
		if !changed && p.Vars[name+"_sha1"] != nil {
			continue
		}
		content, err := os.ReadFile(strings.TrimPrefix(p.Vars.GetString(name+"_url"), "file://"))
		if err != nil {
			return fmt.Errorf("cannot compute the checksum of variable %s_url: %w", name, err)
		}
		p.setVar(name+"_sha1", fmt.Sprintf("sha256:%x", sha256.Sum256(content)))
	}
	return nil
}

// planExisting plans a director with recorded decisions. Some of them are fixed, because a change would create another director.
func (p *Plan) planExisting(dir Dir) error {
	o := p.options
	directorUUID, err := dir.DirectorUUID()
	if err != nil {
		return err
	}
	if p.DeletedDirector != "" && directorUUID == "" {
		return fmt.Errorf("`kubectl bosh down --dir %s` deleted the director, but not yet its Services, which a new director could not use; "+
			"run it again first", dir.Path)
	}
	p.DeletedDirector = "" // delete-env was interrupted
	for _, fixed := range []struct{ flag, requested, recorded string }{
		{"--name", o.Director, p.Director}, {"--namespace", o.Namespace, p.Namespace}, {"--network", o.Network, p.Network},
		{"--range", o.Range, p.Vars.GetString("internal_cidr")}, {"--address", o.Address, p.Vars.GetString("internal_ip")},
		{"--credentials", o.Credentials, p.Credentials},
	} {
		if fixed.requested == "" || fixed.requested == fixed.recorded {
			continue
		}
		if directorUUID == "" {
			return fmt.Errorf("the files in directory %s are for %s %q, not %q, and create-env has not used them yet; "+
				"run `kubectl bosh down --dir %[1]s`, delete the directory, and run up again with all flags",
				dir.Path, fixed.flag, fixed.recorded, fixed.requested)
		}
		return fmt.Errorf("directory %s belongs to a director with %s %q, not %q; use another directory (--dir), or edit its files",
			dir.Path, fixed.flag, fixed.recorded, fixed.requested)
	}
	p.addDecision("all", "as recorded in "+dir.filePath(settingsFile)+" and "+dir.filePath(varsFile))
	if err := p.applyOptions(); err != nil {
		return err
	}
	for _, name := range p.changedVars {
		p.addDecision(name, "changed by a flag") // without its value, which may be secret
	}
	if o.LostVM != "" {
		p.addDecision("VM", o.LostVM+" does not run; create-env recreates it with the director's disk")
	}
	if published := o.PublishedRelease; published.URL != "" && p.Vars.GetString("kubernetes_cpi_url") != published.URL {
		p.addDecision("release", "not the one of this plugin, "+published.URL+"; to use that, add --release "+Published)
	}
	if directorUUID == "" {
		return nil
	}
	return p.planKubeconfig(dir)
}

// planKubeconfig describes changes of the kubeconfig, which make create-env recreate the director's VM.
func (p *Plan) planKubeconfig(dir Dir) error {
	const recreates = "; create-env recreates the director's VM, because the manifest contains the kubeconfig"
	previousPath, err := dir.previousTokenPath()
	if err != nil {
		return err
	}
	if previousPath != "" {
		p.addDecision(kubeconfigFile, "the directory was moved from "+filepath.Dir(previousPath)+recreates)
	}
	if p.options.ReplaceServer {
		p.addDecision(kubeconfigFile, "API server replaced with the one in your kubeconfig (--replace-server)"+recreates)
	}
	return nil
}

func (p *Plan) planNetwork(ctx context.Context, addresses AddressFinder) error {
	plugin := p.inspection.NetworkPlugin
	reserved, reason := p.reservedRange()
	switch {
	case p.options.Network == NetworkService:
		return p.useServiceAddress(ctx, addresses, "set by --network")
	case reserved != nil:
		return p.useStaticAddress(ctx, addresses, *reserved, reason)
	case p.options.Network == NetworkStatic:
		return errors.New("--network static requires a reserved range, which the network plugin assigns on request only; " +
			"set --range (docs/guides/networks.md#reserved-ranges)")
	case plugin.Name == "":
		return p.useServiceAddress(ctx, addresses, "the network plugin is unknown, and so is whether it assigns requested addresses")
	case len(plugin.Annotations) == 0:
		return p.useServiceAddress(ctx, addresses, plugin.Name+" does not assign requested addresses")
	}
	return p.useServiceAddress(ctx, addresses, plugin.Name+" assigns requested addresses, but without a reserved range "+
		"any Pod could get the director's address; reserve a range (docs/guides/networks.md#reserved-ranges) and set --range")
}

// reservedRange returns the reserved range and the reason to use it, or nil if there is none.
func (p *Plan) reservedRange() (reserved *network.AddressRange, reason string) {
	switch {
	case p.options.Range != "":
		return &network.AddressRange{Prefix: netip.MustParsePrefix(p.options.Range)}, "set by --range"
	case len(p.inspection.ReservedRanges) > 0:
		first := p.inspection.ReservedRanges[0]
		return &first, p.inspection.NetworkPlugin.Name + " assigns requested addresses, and " + first.Source +
			" reserves " + first.String()
	}
	return nil, ""
}

func (p *Plan) useStaticAddress(ctx context.Context, addresses AddressFinder, reserved network.AddressRange, reason string) error {
	address := p.options.Address
	if address == "" {
		var err error
		if address, err = addresses.FindFreePodAddress(ctx, reserved, directorOffset); err != nil {
			return err
		}
	}
	if parsed, err := netip.ParseAddr(address); err != nil || !reserved.Contains(parsed) {
		return fmt.Errorf("--address %s is not in the reserved range %s; choose an address in the range, or change --range", address, reserved)
	}
	p.Network = NetworkStatic
	p.Vars["internal_ip"], p.Vars["internal_cidr"] = address, reserved.String()
	p.Vars["internal_gw"] = cluster.AddressAt(reserved.Prefix, gatewayOffset).String()
	p.addDecision("network", NetworkStatic+": "+reason)
	p.addDecision("address", address+", requested by each VM Pod of the director")
	if plugin := p.inspection.NetworkPlugin; len(plugin.Annotations) > 0 && plugin.Name != network.Calico {
		p.OpsFiles = append(p.OpsFiles, "address-annotations.yml")
		annotations := []any{}
		for _, annotation := range plugin.Annotations {
			annotations = append(annotations, map[string]any{"name": annotation.Name, "value": annotation.Value})
		}
		p.Vars["address_annotations"] = annotations
		p.addDecision("annotation", strings.Join(plugin.AnnotationNames(), " and ")+", which "+plugin.Name+" reads")
	}
	return nil
}

func (p *Plan) useServiceAddress(ctx context.Context, addresses AddressFinder, reason string) error {
	address := p.options.Address
	if address == "" {
		var err error
		if address, err = addresses.FindFreeServiceAddress(ctx, p.inspection); err != nil {
			return err
		}
	}
	inRange := func(prefix netip.Prefix) bool { return prefix.Contains(netip.MustParseAddr(address)) }
	if ranges := p.inspection.ServiceRanges; len(ranges) > 0 && !slices.ContainsFunc(ranges, inRange) {
		return fmt.Errorf("--address %s is not in the Service range %s; choose an address in the range", address, ranges[0])
	}
	p.Network = NetworkService
	p.OpsFiles = append(p.OpsFiles, "service.yml")
	p.Vars["internal_ip"] = address
	p.addDecision("network", NetworkService+": "+reason)
	p.addDecision("address", address+" of Service bosh-director, which remains when the director's VM is recreated")
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

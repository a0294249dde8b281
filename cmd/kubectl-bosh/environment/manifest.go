package environment

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"sigs.k8s.io/yaml"

	"bosh-kubernetes-cpi/stemcell"
)

// Manifest is the part of an interpolated manifest that this package reads.
type Manifest struct {
	Releases  []struct{ Name, URL string }
	DiskPools []struct {
		Name            string
		CloudProperties any `json:"cloud_properties"`
	} `json:"disk_pools"`
	InstanceGroups []struct {
		Jobs []struct{ Name string }
	} `json:"instance_groups"`
	Variables     []struct{ Name string }
	CloudProvider struct {
		Properties struct{ Kubernetes any } // of the CPI that create-env runs
	} `json:"cloud_provider"`

	plan *Plan
	text []byte
}

// ParseManifest parses the output of InterpolateCommand.
func (p *Plan) ParseManifest(interpolated []byte) (Manifest, error) {
	manifest := Manifest{plan: p, text: interpolated}
	if err := yaml.Unmarshal(interpolated, &manifest); err != nil {
		return manifest, fmt.Errorf("%s is not a manifest for create-env%s", p.Manifest, yamlLine.FindString(err.Error()))
	}
	return manifest, nil
}

// Images returns the images of the stemcell and of bosh-node with which the manifest's CPI creates Pods. An image is "" if it is unknown.
func (p *Plan) Images(ctx context.Context, manifest Manifest) (image, nodeImage string) {
	configured, options := manifest.images()
	image, nodeImage = p.StemcellImage(ctx), cmp.Or(configured, p.NodeImage())
	if found, err := options.Image(image); err == nil {
		image = found
	}
	found, err := options.Image(nodeImage)
	if published, parseErr := name.NewDigest(nodeImage); parseErr == nil && configured == "" {
		found, err = options.PublishedNodeImage(published)
	}
	if err == nil {
		nodeImage = found
	}
	return image, nodeImage
}

// images returns the options for images of the CPI that create-env runs: the image of bosh-node, or "" for that of the release, and
// those of stemcells. The options are empty if they have variables without a value yet.
func (m Manifest) images() (nodeImage string, options stemcell.Options) {
	var properties struct {
		NodeImage string `json:"node_image"`
		Stemcell  stemcell.Options
	}
	content, err := json.Marshal(m.CloudProvider.Properties.Kubernetes)
	if err != nil || json.Unmarshal(content, &properties) != nil {
		return "", stemcell.Options{}
	}
	return properties.NodeImage, properties.Stemcell
}

// storageClasses returns the StorageClasses of the disk pools, and the default class.
func (m Manifest) storageClasses(defaultClass string) []string {
	classes := []string{defaultClass}
	for _, pool := range m.DiskPools {
		properties, _ := pool.CloudProperties.(map[string]any)
		if class, _ := properties["storage_class"].(string); class != "" {
			classes = append(classes, class)
		}
	}
	return classes
}

// HasDirector reports whether the manifest has a BOSH director.
func (m Manifest) HasDirector() bool {
	for _, group := range m.InstanceGroups {
		if slices.ContainsFunc(group.Jobs, func(job struct{ Name string }) bool { return job.Name == "director" }) {
			return true
		}
	}
	return false
}

// variable matches a variable in a manifest, as the BOSH CLI does, for example ((!internal_ip)) or ((director_ssl.ca)).
var variable = regexp.MustCompile(`\(\( ?!?([-/.\w\pL]+) ?\)\)`)

// CheckVariables returns an error that names the variables without a value, except those that create-env generates or has in its store.
func (m Manifest) CheckVariables(dir Dir) error {
	stored := map[string]any{}
	if _, err := dir.readYAML(varsStoreFile, &stored); err != nil {
		return err
	}
	known := append(slices.Collect(maps.Keys(stored)), "kubeconfig", "director_kubeconfig") // files that up writes
	for _, generated := range m.Variables {
		known = append(known, generated.Name)
	}
	var missing []string
	for _, match := range variable.FindAllSubmatch(m.text, -1) {
		if name, _, _ := strings.Cut(string(match[1]), "."); !slices.Contains(known, name) && !slices.Contains(missing, name) {
			missing = append(missing, name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("these variables of %s have no value: %s; set each of them with --var name=value", m.plan.Manifest,
		strings.Join(missing, ", "))
}

// CheckSeries returns an error if the manifest has releases that are compiled for another operating system than the stemcell's: their
// programs may not start, and the BOSH CLI does not compare.
func (m Manifest) CheckSeries(dir Dir) error {
	series := stemcellSeries(m.plan.Vars.GetString("stemcell_url"))
	if series == "" {
		return nil
	}
	var others []string
	other := ""
	for _, release := range m.Releases {
		if compiled := seriesInName(release.URL); compiled != "" && compiled != series {
			others, other = append(others, release.Name), compiled
		}
	}
	if len(others) == 0 {
		return nil
	}
	return fmt.Errorf("the stemcell has operating system %s, but these releases of %s are compiled for %s: %s; use a stemcell for %[3]s, "+
		"or add ops files of bosh-deployment that replace them, for example --ops-file %[5]s",
		series, m.plan.Manifest, other, strings.Join(others, ", "),
		filepath.Join(filepath.Dir(dir.resolve(m.plan.Manifest)), "misc/source-releases/bosh.yml"))
}

// CheckStorageClasses returns an error if a disk pool of the manifest requires the default StorageClass, and the cluster has none: the
// director's disk would stay unbound until create-env times out.
func (m Manifest) CheckStorageClasses() error {
	for _, pool := range m.DiskPools {
		properties, isHash := pool.CloudProperties.(map[string]any)
		class := properties["storage_class"]
		if m.plan.inspection.NoDefaultStorageClass && (isHash || pool.CloudProperties == nil) && (class == nil || class == "") {
			return fmt.Errorf("the cluster has no default StorageClass, and disk pool %s of %s sets none; annotate a StorageClass with "+
				"storageclass.kubernetes.io/is-default-class=true (first install a CSI driver if there is none), or set "+
				"cloud_properties.storage_class of the pool with an --ops-file",
				pool.Name, m.plan.Manifest)
		}
	}
	return nil
}

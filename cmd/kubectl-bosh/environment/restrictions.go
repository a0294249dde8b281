package environment

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"bosh-kubernetes-cpi/cmd/kubectl-bosh/cluster"
	"bosh-kubernetes-cpi/manifests"
)

// restrictionFiles are the files with the objects that limit the CPI's permissions and the traffic of VMs, in the order in which they are
// applied: without the limits, the admission policy rejects all Pods of the CPI.
var restrictionFiles = []string{limitsFile, policyFile, networkPolicyFile}

// exampleLimits are the values in manifests/admission-limits.yaml that each cluster must replace.
var exampleLimits = regexp.MustCompile(`(?m)^  (images|node_images|storage_classes): \|\n(?: {4}.*\n)+`)

// planRestrictions decides on the restrictions. It fails if the limits of a new file would lack an image.
func (p *Plan) planRestrictions(ctx context.Context, dir Dir) error {
	p.Restricted = p.Restricted || p.options.Restricted
	if !p.Restricted {
		return nil
	}
	switch isNew := !isFile(dir.filePath(limitsFile)); {
	case isNew && p.StemcellImage(ctx) == "":
		return errors.New("--restricted limits the images of VMs, and the image of this stemcell is unknown; use a light stemcell, as an " +
			"image, a file, or a URL with a SHA256 as its checksum")
	case isNew && p.NodeImage() == "":
		return errors.New("--restricted limits the image of bosh-node, and that of this release is unknown; use a release of this CPI as a " +
			"file, or the published one of this plugin")
	}
	p.addDecision("restrictions", "an admission policy with the limits in "+dir.filePath(limitsFile)+", and the network policies in "+
		dir.filePath(networkPolicyFile)+", which admit operators only through the proxy")
	switch p.inspection.NetworkPlugin.Name {
	case "flannel":
		p.addDecision("network policies", "have no effect, because flannel does not enforce them")
	case "Cilium":
		p.addDecision("network policies", "do not let the director reach the API server with Cilium: first apply the "+
			"CiliumNetworkPolicy in the comment of manifests/network-policy.yaml")
	case "the EKS network plugin":
		p.addDecision("network policies", "have no effect unless enableNetworkPolicy of the add-on vpc-cni is true")
	}
	return nil
}

// WriteLimits writes limits that admit the images, StorageClasses and service account in the manifest of a restricted director. It only
// adds images to limits that exist, which the operator may have edited, and only if a flag selects the release or the stemcell. Without a
// manifest, it writes nothing.
func (d Dir) WriteLimits(ctx context.Context, plan *Plan, manifest Manifest) error {
	if !plan.Restricted || manifest.plan == nil {
		return nil
	}
	recorded, err := os.ReadFile(d.filePath(limitsFile))
	isNew := errors.Is(err, fs.ErrNotExist)
	if err != nil && !isNew {
		return err
	}
	limits := string(recorded)
	if isNew {
		limits = plan.newLimits()
	}
	for _, value := range plan.limitValues(ctx, manifest, isNew) {
		if limits, err = addLimit(limits, value[0], value[1]); err != nil {
			return fmt.Errorf("%s: %w", d.filePath(limitsFile), err)
		}
	}
	if !isNew && limits == string(recorded) {
		return nil
	}
	return d.write(limitsFile, []byte(limits))
}

// newLimits returns limits without values that each cluster must set.
func (p *Plan) newLimits() string {
	limits := withNamespace(exampleLimits.ReplaceAllString(manifests.AdmissionLimits, "  $1: \"\"\n"), p.Namespace)
	labels := "  labels:\n    " + cluster.LabelDirectorName + ": " + quoteYAML(p.Director) + "\n"
	return strings.Replace(limits, "metadata:\n", "metadata:\n"+labels, 1)
}

// limitValues returns the keys of limits, and values to add to them.
func (p *Plan) limitValues(ctx context.Context, manifest Manifest, isNew bool) (values [][2]string) {
	image, nodeImage := p.Images(ctx, manifest)
	if isNew || p.options.Stemcell != "" {
		if reference, err := name.ParseReference(image); err == nil {
			repository := reference.Context().Name()
			values = append(values, [2]string{"images", repository + ":"}, [2]string{"images", repository + "@"})
		}
	}
	if isNew || p.options.Release != "" {
		values = append(values, [2]string{"node_images", nodeImage})
	}
	if !isNew {
		return values
	}
	for _, class := range manifest.storageClasses(p.inspection.DefaultStorageClass) {
		values = append(values, [2]string{"storage_classes", class})
	}
	if p.Credentials == CredentialsInCluster {
		values = append(values, [2]string{"service_accounts", Account})
	}
	return values
}

// addLimit adds a value to a list of the limits, unless it is there.
func addLimit(limits, key, value string) (string, error) {
	listed, err := listLimit(limits, key)
	if err != nil || value == "" || slices.Contains(listed, value) {
		return limits, err
	}
	list := regexp.MustCompile(`(?m)^  ` + key + `: (?:\|\n((?: {4}\S.*\n)*)|""\n)`).FindStringSubmatch(limits)
	if list == nil {
		return "", fmt.Errorf("cannot add %s to the list %s, which has another form; add it yourself", value, key)
	}
	limits = strings.Replace(limits, list[0], "  "+key+": |\n"+list[1]+"    "+value+"\n", 1)
	added, err := listLimit(limits, key)
	if err == nil && !slices.Equal(added, append(listed, value)) {
		err = fmt.Errorf("cannot add %s to the list %s; add it yourself", value, key)
	}
	return limits, err
}

// listLimit returns the values of a list of the limits.
func listLimit(limits, key string) ([]string, error) {
	var object corev1.ConfigMap
	if err := yaml.Unmarshal([]byte(limits), &object); err != nil {
		return nil, fmt.Errorf("is not a ConfigMap%s", yamlLine.FindString(err.Error()))
	}
	return strings.Fields(object.Data[key]), nil
}

// RestrictionObjects returns the objects in the files of a restricted director, which the operator may edit. Files that do not exist are
// omitted.
func (d Dir) RestrictionObjects() ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	for _, name := range restrictionFiles {
		found, err := d.readObjects(name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		objects = append(objects, found...)
	}
	return objects, nil
}

// restrictCommands returns the shell commands that apply the restrictions, if there are any.
func (d Dir) restrictCommands(plan *Plan) []string {
	if !plan.Restricted {
		return nil
	}
	var commands []string
	for _, name := range restrictionFiles {
		commands = append(commands, "kubectl apply -f "+quoteWord(d.filePath(name))+plan.kubectlFlags())
	}
	return append(commands, "kubectl label namespace "+plan.Namespace+" "+cluster.PolicyLabel+"=on"+plan.kubectlFlags())
}

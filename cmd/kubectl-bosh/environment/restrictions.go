package environment

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"bosh-kubernetes-cpi/cmd/kubectl-bosh/cluster"
	"bosh-kubernetes-cpi/manifests"
)

// restrictionFiles are the files with the objects that limit the CPI's permissions and the traffic of VMs, in the order in which they are
// applied: without the limits, the admission policy rejects all Pods of the CPI.
var restrictionFiles = []string{limitsFile, policyFile, networkPolicyFile}

// exampleLimits are the values in manifests/admission-limits.yaml that each cluster must replace.
var exampleLimits = regexp.MustCompile(`(?m)^  (images|node_images|storage_classes): \|\n(?: {4}.*\n)+`)

// planRestrictions adds the director's images, StorageClass and service account to the recorded limits, or to the default ones. Recorded
// limits may already have an image that is unknown now, for example because its URL cannot be reached; preflight checks that.
func (p *Plan) planRestrictions(ctx context.Context, dir Dir) error {
	p.Restricted = p.Restricted || p.options.Restricted
	if !p.Restricted {
		return nil
	}
	recorded, err := os.ReadFile(dir.filePath(limitsFile))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	p.limits = string(recorded)
	if p.limits == "" {
		p.limits = withNamespace(exampleLimits.ReplaceAllString(manifests.AdmissionLimits, "  $1: \"\"\n"), p.Namespace)
	}
	image, nodeImage := p.StemcellImage(ctx), p.NodeImage()
	switch isNew := len(recorded) == 0; {
	case isNew && image == "":
		return errors.New("--restricted limits the images of VMs, and the image of this stemcell is unknown; use a light stemcell, as an " +
			"image, a file, or a URL with a SHA256 as its checksum")
	case isNew && nodeImage == "":
		return errors.New("--restricted limits the image of bosh-node, and that of this release is unknown; use a release of this CPI as a " +
			"file, or the published one of this plugin")
	}
	limits := [][2]string{{"node_images", nodeImage}, {"storage_classes", p.inspection.DefaultStorageClass}}
	if reference, err := name.ParseReference(image); err == nil {
		repository := reference.Context().Name()
		limits = append(limits, [2]string{"images", repository + ":"}, [2]string{"images", repository + "@"})
	}
	if p.Credentials == CredentialsInCluster {
		limits = append(limits, [2]string{"service_accounts", Account})
	}
	for _, limit := range limits {
		if err := p.addLimit(limit[0], limit[1]); err != nil {
			return err
		}
	}
	p.addDecision("restrictions", "the limits in "+dir.filePath(limitsFile)+", which an admission policy enforces, and network policies")
	return nil
}

// addLimit adds a value to a list of the limits, which the operator may have edited, unless it is there.
func (p *Plan) addLimit(key, value string) error {
	if value == "" {
		return nil
	}
	list := regexp.MustCompile(`(?m)^  ` + key + `: (?:\|\n((?: {4}.*\n)*)|""\n)`).FindStringSubmatch(p.limits)
	if list == nil {
		return fmt.Errorf("%s has no list %s; add %s: |, with one value per line below it", limitsFile, key, key)
	}
	if entry := "    " + value + "\n"; !strings.Contains("\n"+list[1], "\n"+entry) {
		p.limits = strings.Replace(p.limits, list[0], "  "+key+": |\n"+list[1]+entry, 1)
	}
	return nil
}

// writeLimits writes the limits if they changed, and returns the outcome.
func (d Dir) writeLimits(content string) (string, error) {
	existing, err := os.ReadFile(d.filePath(limitsFile))
	if err == nil && string(existing) == content {
		return outcomeUnchanged, nil
	}
	return outcomeWritten, d.write(limitsFile, []byte(content))
}

// RestrictionObjects returns the objects in the files of a restricted director, which the operator may edit.
func (d Dir) RestrictionObjects() ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	for _, name := range restrictionFiles {
		found, err := d.readObjects(name)
		if err != nil {
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

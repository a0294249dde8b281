package disk

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Options are the settings for disks in the CPI's configuration.
type Options struct {
	// AttachmentPriorityClass is the name of the PriorityClass of attachment Pods, for clusters that forbid the default,
	// manifest.AttachmentPriorityClass.
	AttachmentPriorityClass string `json:"attachment_priority_class"`
}

// Validate returns an error that names the invalid option.
func (o Options) Validate() error {
	if name := o.AttachmentPriorityClass; name != "" && len(validation.IsDNS1123Subdomain(name)) > 0 {
		return fmt.Errorf("kubernetes.disk.attachment_priority_class %q is not a valid PriorityClass name", name)
	}
	return nil
}

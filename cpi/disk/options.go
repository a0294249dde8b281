package disk

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Options are what the operator says of disks.
type Options struct {
	// AttachmentPriorityClass names the PriorityClass of attachments; their machines' when empty.
	AttachmentPriorityClass string `json:"attachment_priority_class"`
}

// Validate names the option that is wrong.
func (o Options) Validate() error {
	if name := o.AttachmentPriorityClass; name != "" && len(validation.IsDNS1123Subdomain(name)) > 0 {
		return fmt.Errorf("disk.attachment_priority_class %q is no name of a PriorityClass", name)
	}
	return nil
}

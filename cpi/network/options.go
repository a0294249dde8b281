package network

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation"

	"bosh-kubernetes-cpi/kube/manifest"
)

// Options say how a static address is asked of the cluster's network plugin.
type Options struct {
	// AddressAnnotations are put on the Pod of a VM with a manual network.
	AddressAnnotations []AddressAnnotation `json:"address_annotations"`
	// KeepDynamicAddresses asks for a dynamic network's address again when the Pod's sandbox has to be
	// made anew, by the same annotations.
	KeepDynamicAddresses bool `json:"keep_dynamic_addresses"`
}

// AddressAnnotation is one annotation by which a network plugin takes addresses.
type AddressAnnotation struct {
	// Name is the annotation's name.
	Name string `json:"name"`
	// Value is the annotation's value, with {{json .IPs}}, {{join .IPs ","}} and {{index .IPs 0}} for the
	// addresses.
	Value string `json:"value"`
}

// DefaultOptions suit Calico and the project's CNI shim; each ignores the other's annotation.
func DefaultOptions() Options {
	return Options{
		AddressAnnotations: []AddressAnnotation{
			{Name: "cni.projectcalico.org/ipAddrs", Value: `{{json .IPs}}`},
			{Name: manifest.AnnotationRequestedAddresses, Value: `{{join .IPs ","}}`},
		},
		KeepDynamicAddresses: true,
	}
}

// Validate tries every annotation, and names the one that is wrong.
func (o Options) Validate() error {
	_, err := o.Annotations([]string{"192.0.2.1"})
	return err
}

// Annotations returns the Pod annotations that ask for these addresses.
func (o Options) Annotations(addresses []string) (map[string]string, error) {
	if len(addresses) == 0 {
		return nil, nil
	}
	annotations := make(map[string]string, len(o.AddressAnnotations))
	for i, annotation := range o.AddressAnnotations {
		if len(validation.IsQualifiedName(annotation.Name)) > 0 {
			return nil, fmt.Errorf("network.address_annotations[%d].name %q is not an annotation's name", i, annotation.Name)
		}
		if annotation.Value == "" {
			return nil, fmt.Errorf("network.address_annotations[%d].value is missing: it is where the addresses are to stand", i)
		}
		value, err := RenderAddressTemplate(annotation.Value, addresses)
		if err != nil {
			return nil, fmt.Errorf("network.address_annotations[%d].value: %w", i, err)
		}
		annotations[annotation.Name] = value
	}
	return annotations, nil
}

package network

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"

	"bosh-kubernetes-cpi/cpi/manifest"
)

// Options configures how addresses are requested from the cluster's network plugin.
type Options struct {
	// AddressAnnotations are the annotations of a Pod that request the addresses of manual networks.
	AddressAnnotations []AddressAnnotation `json:"address_annotations"`
	// KeepDynamicAddresses also requests the address assigned by a dynamic network, so that the Pod keeps it when its sandbox is
	// recreated.
	KeepDynamicAddresses bool `json:"keep_dynamic_addresses"`
}

// AddressAnnotation is an annotation from which a network plugin reads requested addresses.
type AddressAnnotation struct {
	Name string `json:"name"`
	// Value is a template with the actions {{json .IPs}}, {{join .IPs ","}} and {{index .IPs 0}} for the addresses.
	Value string `json:"value"`
}

// DefaultOptions returns the options for Calico and for the CNI shim of this project. Each ignores the annotation of the other.
func DefaultOptions() Options {
	return Options{
		AddressAnnotations: append(slices.Clone(calicoAnnotations),
			AddressAnnotation{Name: manifest.AnnotationRequestedAddresses, Value: `{{join .IPs ","}}`}),
		KeepDynamicAddresses: true,
	}
}

// Validate checks the annotations with an example address. Its errors name the invalid annotation.
func (o Options) Validate() error {
	_, err := o.Annotations([]string{"192.0.2.1"})
	return err
}

// Annotations returns the annotations that request these addresses.
func (o Options) Annotations(addresses []string) (map[string]string, error) {
	if len(addresses) == 0 {
		return nil, nil
	}
	annotations := make(map[string]string, len(o.AddressAnnotations))
	for i, annotation := range o.AddressAnnotations {
		if len(validation.IsQualifiedName(annotation.Name)) > 0 {
			return nil, fmt.Errorf("kubernetes.network.address_annotations[%d].name %q is not a valid annotation name", i, annotation.Name)
		}
		if annotation.Value == "" {
			return nil, fmt.Errorf("kubernetes.network.address_annotations[%d].value is missing; set it to a template such as {{json .IPs}}", i)
		}
		value, err := RenderAddressTemplate(annotation.Value, addresses)
		if err != nil {
			return nil, fmt.Errorf("kubernetes.network.address_annotations[%d].value: %w", i, err)
		}
		annotations[annotation.Name] = value
	}
	return annotations, nil
}

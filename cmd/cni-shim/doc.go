// Command cni-shim lets Pods request their addresses on clusters with a network plugin that does not read annotations, but supports
// the CNI conventions for requested addresses: IP in CNI_ARGS, or the capability ips (host-local, static, whereabouts, older
// Calico).
//
// It is a CNI plugin for versions 0.3.1 to 1.1.0 of the specification (https://www.cni.dev/docs/spec/). In the list of a network it
// replaces the actual plugin, its delegate, and contains the delegate's configuration:
//
//	{
//	  "type": "bosh-cni-shim",
//	  "kubernetes": {"kubeconfig": "/etc/cni/net.d/bosh-cni-shim.kubeconfig", "timeout": "10s"},
//	  "annotation": "bosh.cloudfoundry.org/ip-address",
//	  "namespaces": ["bosh"],
//	  "subnets": ["10.244.9.0/24"],
//	  "delegate": {"type": "bridge", "ipam": {"type": "host-local", "subnet": "10.244.9.0/24"}}
//	}
//
// On ADD it reads the annotation of the Pod through the Kubernetes API, requests these addresses from the delegate, and compares
// them with the delegate's result. It passes Pods of other namespaces, Pods without the annotation, and all other commands to the
// delegate. Only ADD sends requests to the API server, which means that Pods can be deleted while it is down.
//
// The program also installs itself on nodes and uninstalls itself: see package install.
package main

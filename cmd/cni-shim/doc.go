// Command cni-shim lets Pods request their addresses on clusters with a network plugin that does not read annotations. The plugin
// must support the CNI conventions for requested addresses: IP in CNI_ARGS, or the capability ips. Examples are host-local, static,
// whereabouts and older versions of Calico.
//
// It is a CNI plugin for versions 0.3.1 to 1.1.0 of the specification (https://www.cni.dev/docs/spec/). In a network configuration,
// it replaces another plugin, its delegate, and contains the delegate's configuration:
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
// On ADD, it reads the requested addresses from the Pod's annotation, requests them from the delegate, and compares them with the
// delegate's result. It passes Pods of other namespaces, Pods without the annotation, and all other commands to the delegate. Only
// ADD sends requests to the API server, so Pods can be deleted while the API server is down.
//
// The program also installs itself on nodes and uninstalls itself: see package install.
package main

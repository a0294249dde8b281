// Command cni-shim lets a Pod ask for its address on clusters whose network plugin cannot read an
// annotation, but takes an address the way the CNI specification's conventions describe it: IP in
// CNI_ARGS, or the capability ips (host-local, static, whereabouts, older Calico).
//
// It is a CNI plugin, for versions 0.3.1 to 1.1.0 of the specification
// (https://www.cni.dev/docs/spec/), that stands in a network's list in the place of the real plugin,
// its delegate, whose configuration it holds:
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
// On ADD it reads the Pod's annotation through the Kubernetes API, asks the delegate for those
// addresses, and compares them with what the delegate gave. A Pod of another namespace or
// without the annotation, and every other command, is the delegate's alone: nothing but ADD ever asks the API, so that a Pod can be
// deleted while no API server answers.
//
// The same program puts itself on a node and takes itself off again: see package install.
package main

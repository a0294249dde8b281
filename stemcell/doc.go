// Package stemcell turns what BOSH calls a stemcell into a container image's reference.
//
// A light stemcell names an image; it is asked for once, so that its reference can be pinned by digest,
// and is never changed. A heavy stemcell brings a root filesystem, which is pushed as an image to the
// operator's registry, and is removed from there with the stemcell.
//
// The package knows registries and stemcell formats, and nothing of Kubernetes' API or the CPI's
// protocol.
package stemcell

// Package stemcell provides stemcells as container images.
//
// A light stemcell refers to an image in a registry. The package looks up the image's digest once, to pin the reference, and never changes
// the image. A heavy stemcell contains a root filesystem. The package pushes it as an image to the operator's registry, and deletes the
// image with the stemcell.
//
// The image of bosh-node, the program on nodes, goes the same way: nodes pull it from the same registry or mirror.
//
// The package is independent of the Kubernetes API and of the CPI protocol.
package stemcell

// Package stemcells gives tests what stemcells are made of and pushed to: root filesystems, stemcell
// tarballs, and a registry that counts what it is sent and fails as it is told.
package stemcells

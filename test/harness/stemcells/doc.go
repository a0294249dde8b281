// Package stemcells provides root filesystems and tarballs of stemcells, and container registries for tests. Registry counts uploads and
// injects faults. DebianRegistry is a real registry.
package stemcells

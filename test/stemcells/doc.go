// Package stemcells provides root filesystems and tarballs of stemcells for tests, and registries, one of which counts uploads and
// injects faults.
package stemcells

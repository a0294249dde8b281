//go:build !linux

package stemcell

// releaseStartPages has no effect except on Linux, the platform of directors.
func releaseStartPages() {}

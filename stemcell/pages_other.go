//go:build !linux

package stemcell

// releaseStartPages is for Linux, where directors are.
func releaseStartPages() {}

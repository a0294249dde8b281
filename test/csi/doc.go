// Package csi contains a CSI driver for tests: volumes are image files on loop devices of a single host. It implements the CSI spec
// (github.com/container-storage-interface/spec) for the real sidecars and kubelet, which csi-sanity checks. Do not use it for data
// that you want to keep.
//
// csi-driver-host-path of kubernetes-csi does not replace it: its mounted volumes are directories without a size limit, and its
// snapshots are archives of files. It cannot be used to test growth, a full disk, or the content of a snapshot of a mounted filesystem.
//
//   - store stores volumes, snapshots and nodes as files, independent of devices.
//   - device manages loop devices, filesystems and mounts, independent of volumes.
//   - driver implements the calls of CSI with both.
package csi

// Package csi contains a CSI driver for tests. Volumes are image files on loop devices of a single host. The driver implements the CSI
// spec (github.com/container-storage-interface/spec) for the real sidecars and kubelet, and passes csi-sanity. Do not use it for data
// that you want to keep.
//
// kubernetes-csi's csi-driver-host-path is not sufficient: its mounted volumes are directories without a size limit, and its snapshots
// are archives of files. It cannot be used to test growth, a full disk, or the snapshot of a mounted filesystem.
//
//   - store stores volumes, snapshots and nodes as files, independent of devices.
//   - device manages loop devices, filesystems and mounts, independent of volumes.
//   - driver implements the CSI calls with both.
package csi

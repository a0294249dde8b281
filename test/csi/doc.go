// Package csi holds a CSI driver for tests: volumes are image files on loop devices of a single machine.
// It follows the CSI spec (github.com/container-storage-interface/spec) so that the real sidecars and a
// real kubelet can work with it; csi-sanity checks that. It is no storage for anything that matters.
//
// kubernetes-csi's own csi-driver-host-path is no substitute: its mounted volumes are folders without a size
// of their own and its snapshots are archives of files, so that growth, a full disk, and what a snapshot
// holds of a mounted filesystem could not be tested with it.
//
//   - store keeps volumes, snapshots and nodes as files; it knows no device.
//   - device works on loop devices, filesystems and mounts; it knows no volume.
//   - driver answers CSI's calls with both.
package csi

// Package csi holds a CSI driver for tests: volumes are image files on loop devices of a single machine.
// It follows the CSI spec (github.com/container-storage-interface/spec) so that the real sidecars and a
// real kubelet can work with it; csi-sanity checks that. It is no storage for anything that matters.
//
//   - store keeps volumes, snapshots and nodes as files; it knows no device.
//   - device works on loop devices, filesystems and mounts; it knows no volume.
//   - driver answers CSI's calls with both.
package csi

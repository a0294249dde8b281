package manifest

import (
	"bosh-kubernetes-cpi/cpi/node/api"
)

// FlushPodName returns the name of the flush Pod of this disk.
func FlushPodName(disk string) string { return disk + "-flush" }

// FlushPod returns the Pod that writes all cached data of the attachment's node to its disks before a snapshot: sync(2) is not
// limited to a mount namespace.
func FlushPod(attachment AttachmentPod, director, nodeImage string) HelperPod {
	return newOwnedHelperPod(FlushPodName(attachment.Disk()), RoleFlush, director, nodeImage, attachment.Pod, api.Flush())
}

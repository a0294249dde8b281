// Package manifest builds the Kubernetes objects that implement BOSH's VMs, disks, snapshots and networks, and the patches that
// change them.
//
// [VM], [Disk], [Attachment] and [Service] describe what a call requests. Their methods return complete
// objects. Functions such as [AssignDisk] return the body of a patch: a strategic merge patch, unless their comment mentions a
// JSON patch. [VMPod], [AttachmentPod] and [DiskPVC] are existing objects, with methods for what their labels and
// annotations record. All names of labels, annotations and roles are in names.go, and the programs that the containers run are in
// package node.
//
// The package sends no requests, and uses no clock, environment or context: equal input gives equal objects. Package kube sends
// them, and package cpi decides when.
package manifest

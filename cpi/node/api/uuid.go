package api

import (
	"crypto/sha1" // of RFC 9562, not for security
	"encoding/hex"
	"regexp"
	"strings"
)

// diskCID matches the CIDs that the CPI creates.
var diskCID = regexp.MustCompile(`^disk-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})$`)

// DiskUUID returns the UUID of the filesystem of a disk: the one in a CID of the form disk-UUID, or else one that is derived from the CID
// as in version 5 of RFC 9562. Attachments and the start of a VM recognize the filesystem by it.
func DiskUUID(cid string) string {
	if match := diskCID.FindStringSubmatch(strings.ToLower(cid)); match != nil {
		return match[1]
	}
	sum := sha1.Sum([]byte("bosh-kubernetes-cpi/" + cid))
	id := sum[:16]
	id[6] = id[6]&0x0f | 0x50
	id[8] = id[8]&0x3f | 0x80
	text := hex.EncodeToString(id)
	return strings.Join([]string{text[:8], text[8:12], text[12:16], text[16:20], text[20:]}, "-")
}

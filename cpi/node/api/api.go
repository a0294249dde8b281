// Package api is the contract between the CPI and bosh-node, the program that runs on nodes: commands, exit statuses and results.
//
// A command is readable in the Pod: "bosh-node disk attach --cid disk-1 --size-mib 1024 …". The result of a command is one JSON object in
// the termination message of its container.
//
// The CPI and a running bosh-node may have different versions: VM Pods keep the program with which they were created, and new attachments
// and checks have the CPI's. What programs of different versions share is therefore also part of the contract:
//
//   - the VM's directory, which is /dev/bosh in the VM and /devices in an attachment. It has the device node CID of each published disk,
//     the lock .CID.lock, which a running attachment holds, and .prepared, which exists if the disk was prepared for the VM Pod.
//   - the file /markers/attached in a volume of the attachment Pod, which exists if the disk was published in the VM.
//   - the marks on a device, two sectors with the CID of its disk, which are there while mkfs runs.
package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Version is the version of the contract. It is incremented if a command, a result or a shared file changes its meaning.
const Version = 1

// Paths of the program.
const (
	// VolumeDir is where containers of other images mount the image as a volume.
	VolumeDir = "/bosh/bin"
	// InVolume is the program in such a container.
	InVolume = VolumeDir + "/bosh-node"
	// InImage is the program in a container of its own image.
	InImage = "/bosh-node"
)

// Filesystems of persistent disks. The default is ext4, as it is the agent's.
const (
	Ext4 = "ext4"
	XFS  = "xfs"
)

// IsFilesystem reports whether a disk can have the filesystem.
func IsFilesystem(name string) bool { return name == Ext4 || name == XFS }

// PrintVersion is the command that prints Version. It has no effect, and succeeds in any container.
const PrintVersion = "version"

// Exit statuses. Any other status, or a signal, means that the command did not finish.
const (
	// ExitFailed is the status of a command that failed with a Result.
	ExitFailed = 1
	// ExitUsage is the status of a command with damaged arguments. Nothing was changed.
	ExitUsage = 2
	// ExitNotPublished is the status of a check if the attachment may be about to publish the disk.
	ExitNotPublished = 3
)

// Result is the result of a command that failed.
type Result struct {
	Version int    `json:"version"`
	Code    string `json:"code"`    // of docs/reference/errors.md
	Message string `json:"message"` // without the code
	// Users are processes that use the disk.
	Users []User `json:"users,omitempty"`
}

// maxResult is the longest termination message. Of a longer one, Kubernetes keeps the end.
const maxResult = 4096

// Encode returns the result as a termination message. If it is too long, it lacks users, and then the end of the message.
func (r Result) Encode() ([]byte, error) {
	for {
		encoded, err := json.Marshal(r)
		excess := len(encoded) - maxResult
		switch {
		case err != nil || excess <= 0:
			return encoded, err
		case len(r.Users) > 0: // the message names them
			r.Users = r.Users[:len(r.Users)-1]
		default:
			const cut = "…"
			end := max(len(r.Message)-max(excess/2, len(cut)+1), 0) // half: JSON needs two bytes for a newline
			r.Message = strings.ToValidUTF8(r.Message[:end], "") + cut
		}
	}
}

// String returns the message, with the code in brackets if there is one.
func (r Result) String() string {
	if r.Code == "" {
		return r.Message
	}
	return r.Message + " [" + r.Code + "]"
}

// User is a process that uses a disk, or, without a process, a loop device.
type User struct {
	Process int    `json:"process"`
	Name    string `json:"name"`
	Path    string `json:"path"` // where it mounted the disk, or a file that it has open
	Mounted bool   `json:"mounted"`
}

// String describes the user in a message.
func (u User) String() string {
	if u.Process == 0 {
		return fmt.Sprintf("loop device %s shows it; detach that first", u.Path)
	}
	if u.Mounted {
		return fmt.Sprintf("process %d (%s) has it mounted at %s", u.Process, u.Name, u.Path)
	}
	return fmt.Sprintf("process %d (%s) uses %s", u.Process, u.Name, u.Path)
}

// ParseResult returns the result in a termination message. ok is false if the message is not a result, for example because the program
// did not start.
func ParseResult(message string) (result Result, ok bool) {
	err := json.Unmarshal([]byte(message), &result)
	return result, err == nil && result.Version > 0 && result.Code != ""
}

// Error is an error with a code of docs/reference/errors.md.
type Error struct {
	Code  string
	Users []User
	err   error
}

// Errorf returns an error with a code, which becomes the Result of the command.
func Errorf(code, format string, arguments ...any) *Error {
	return &Error{Code: code, err: fmt.Errorf(format, arguments...)}
}

// With adds the processes that use the disk.
func (e *Error) With(users []User) *Error {
	e.Users = users
	return e
}

func (e *Error) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.err }

// ResultOf returns the result of a command that failed with this error. An error without a code gets fallback.
func ResultOf(err error, fallback string) Result {
	result := Result{Version: Version, Code: fallback, Message: err.Error()}
	if coded, ok := errors.AsType[*Error](err); ok {
		result.Code, result.Users = coded.Code, coded.Users
	}
	return result
}

package api

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Disk is a disk of a VM on its node, the argument of the commands "disk …".
type Disk struct {
	CID         string
	SizeMiB     int64
	Filesystem  string // ext4 or xfs
	Formatted   bool   // a VM had the disk before
	Preallocate bool   // allocate the full size of an image file
	VM          string // NAMESPACE/NAME
}

// Commands on a disk: see Disk.Command.
const (
	Attach  = "attach"  // publishes the disk in the VM, until a signal to stop
	Prepare = "prepare" // formats or grows a disk that becomes a volume of the VM Pod
	Idle    = "idle"    // of a disk that is a volume of the VM Pod: waits for a signal to stop
	Wait    = "wait"    // waits until the attachment in the same container publishes its disk
	Check   = "check"   // the exclusivity check
)

// Command returns the arguments of a command on the disk, after the path of the program.
func (d Disk) Command(name string) []string {
	arguments := []string{"disk", name, "--cid", d.CID, "--vm", d.VM}
	if name != Attach && name != Prepare {
		return arguments
	}
	arguments = append(arguments, "--size-mib", strconv.FormatInt(d.SizeMiB, 10), "--filesystem", d.Filesystem)
	if d.Formatted {
		arguments = append(arguments, "--formatted")
	}
	if d.Preallocate {
		arguments = append(arguments, "--preallocate")
	}
	return arguments
}

// ParseDisk returns the disk in the arguments after "disk NAME".
func ParseDisk(name string, arguments []string) (Disk, error) {
	var d Disk
	flags := newFlags()
	flags.StringVar(&d.CID, "cid", "", "")
	flags.StringVar(&d.VM, "vm", "", "")
	if name == Attach || name == Prepare {
		flags.Int64Var(&d.SizeMiB, "size-mib", 0, "")
		flags.StringVar(&d.Filesystem, "filesystem", "", "")
		flags.BoolVar(&d.Formatted, "formatted", false, "")
		flags.BoolVar(&d.Preallocate, "preallocate", false, "")
	}
	if err := parse(flags, arguments); err != nil {
		return d, err
	}
	namespace, vm, _ := strings.Cut(d.VM, "/")
	switch {
	case !isName(d.CID):
		return d, fmt.Errorf("--cid %q is not the CID of a disk", d.CID)
	case !isName(namespace) || !isName(vm):
		return d, fmt.Errorf("--vm %q is not NAMESPACE/NAME", d.VM)
	case flags.Lookup("size-mib") != nil && d.SizeMiB <= 0:
		return d, fmt.Errorf("--size-mib %d is not positive", d.SizeMiB)
	case flags.Lookup("filesystem") != nil && !IsFilesystem(d.Filesystem):
		return d, fmt.Errorf("--filesystem %q is not ext4 or xfs", d.Filesystem)
	}
	return d, nil
}

// isName reports whether the text can be the name of a Kubernetes object, and is not another path.
func isName(text string) bool {
	return text != "" && text[0] != '.' && !strings.ContainsAny(text, "/\x00 \n")
}

// VMStart returns the arguments of the command that is PID 1 of a VM until it becomes the init program; init may be empty.
func VMStart(init string) []string {
	arguments := []string{"vm", "start"}
	if init != "" {
		arguments = append(arguments, "--init", init)
	}
	return arguments
}

// ParseVMStart returns the init program in the arguments after "vm start", or "".
func ParseVMStart(arguments []string) (init string, err error) {
	flags := newFlags()
	flags.StringVar(&init, "init", "", "")
	return init, parse(flags, arguments)
}

// VMStop shuts a VM down, from inside, before its container is stopped.
type VMStop struct {
	ServeSeconds int // how long the VM keeps serving first
	DrainSeconds int // for the drain scripts of the jobs; 0: they do not run
}

// Command returns the arguments of the command, after the path of the program.
func (s VMStop) Command() []string {
	return []string{"vm", "stop", "--serve-seconds", strconv.Itoa(s.ServeSeconds), "--drain-seconds", strconv.Itoa(s.DrainSeconds)}
}

// ParseVMStop parses the arguments after "vm stop".
func ParseVMStop(arguments []string) (s VMStop, err error) {
	flags := newFlags()
	flags.IntVar(&s.ServeSeconds, "serve-seconds", 0, "")
	flags.IntVar(&s.DrainSeconds, "drain-seconds", 0, "")
	err = parse(flags, arguments)
	if err == nil && (s.ServeSeconds < 0 || s.DrainSeconds < 0) {
		err = errors.New("--serve-seconds and --drain-seconds must not be negative")
	}
	return s, err
}

// VMReboot restarts a VM from its node.
type VMReboot struct {
	VM        string // NAMESPACE/NAME
	Container string // the ID of the container to restart
}

// Command returns the arguments of the command, after the path of the program.
func (r VMReboot) Command() []string {
	return []string{"vm", "reboot", "--vm", r.VM, "--container", r.Container}
}

// ParseVMReboot parses the arguments after "vm reboot".
func ParseVMReboot(arguments []string) (r VMReboot, err error) {
	flags := newFlags()
	flags.StringVar(&r.VM, "vm", "", "")
	flags.StringVar(&r.Container, "container", "", "")
	err = parse(flags, arguments)
	if err == nil && (r.VM == "" || r.Container == "") {
		err = errors.New("--vm and --container are required")
	}
	return r, err
}

func newFlags() *flag.FlagSet {
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	return flags
}

func parse(flags *flag.FlagSet, arguments []string) error {
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unknown argument %q", flags.Arg(0))
	}
	return nil
}

package monit

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// ticksPerSecond is USER_HZ, the unit of times in /proc/PID/stat: 100 on all Linux architectures that BOSH supports. See proc(5).
const ticksPerSecond = 100

// processInfo contains the data of a process in /proc.
type processInfo struct {
	parent    int
	ticks     uint64 // of CPU time used
	started   uint64 // ticks after the boot
	memoryKiB int
	state     byte
}

// processTable is a snapshot of all processes.
type processTable struct {
	taken     time.Time
	processes map[int]processInfo
	children  map[int][]int
}

func readProcesses() processTable {
	table := processTable{taken: time.Now(), processes: map[int]processInfo{}, children: map[int][]int{}}
	entries, _ := os.ReadDir("/proc")
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if info, ok := readProcess(pid); ok {
			table.processes[pid] = info
			table.children[info.parent] = append(table.children[info.parent], pid)
		}
	}
	return table
}

func readProcess(pid int) (processInfo, bool) {
	content, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return processInfo{}, false // the process exited
	}
	// The second field, the program's name in parentheses, can contain any character.
	fields := strings.Fields(string(content[bytes.LastIndexByte(content, ')')+1:]))
	if len(fields) < 22 {
		return processInfo{}, false
	}
	number := func(field int) uint64 { // numbered as in proc(5)
		n, _ := strconv.ParseUint(fields[field-3], 10, 64)
		return n
	}
	return processInfo{
		parent: int(number(4)), state: fields[0][0], ticks: number(14) + number(15), started: number(22),
		memoryKiB: int(number(24)) * os.Getpagesize() / 1024,
	}, true
}

// total returns the usage of a process and its descendants.
func (t processTable) total(pid int) (ticks uint64, memoryKiB int) {
	ticks, memoryKiB = t.processes[pid].ticks, t.processes[pid].memoryKiB
	for _, child := range t.children[pid] {
		childTicks, childMemory := t.total(child)
		ticks, memoryKiB = ticks+childTicks, memoryKiB+childMemory
	}
	return ticks, memoryKiB
}

// uptime returns the time since the start of the process.
func (t processTable) uptime(pid int) time.Duration {
	content, err := os.ReadFile("/proc/uptime")
	if err != nil {
		return 0
	}
	seconds, _ := strconv.ParseFloat(strings.Fields(string(content))[0], 64)
	return time.Duration((seconds - float64(t.processes[pid].started)/ticksPerSecond) * float64(time.Second))
}

// memoryTotalKiB returns MemTotal of /proc/meminfo.
func memoryTotalKiB() int {
	content, _ := os.ReadFile("/proc/meminfo")
	for line := range strings.Lines(string(content)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "MemTotal:" {
			total, _ := strconv.Atoi(fields[1])
			return total
		}
	}
	return 0
}

// pid returns the ID of the service's process, or 0 if it is not running. Like monit, it accepts any process with the ID in the pid
// file.
func (c *Check) pid() int {
	if c.Matching != "" {
		return findProcess(c.Matching)
	}
	content, err := os.ReadFile(c.PidFile)
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(content)))
	if err != nil || pid <= 0 {
		return 0
	}
	// A zombie is not running.
	if info, ok := readProcess(pid); !ok || info.state == 'Z' {
		return 0
	}
	return pid
}

// findProcess returns the lowest ID of the processes with a command line that matches the pattern, or 0.
func findProcess(pattern string) int {
	expression, err := regexp.Compile(pattern)
	if err != nil {
		return 0
	}
	found := 0
	for pid := range readProcesses().processes {
		commandLine, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
		if expression.Match(bytes.ReplaceAll(commandLine, []byte{0}, []byte{' '})) && pid != os.Getpid() && (found == 0 || pid < found) {
			found = pid
		}
	}
	return found
}

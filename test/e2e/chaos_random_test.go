//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/test/chaos"
	"bosh-kubernetes-cpi/test/harness/director"
)

// Defaults for CHAOS_VMS and CHAOS_MINUTES.
const (
	chaosVMs     = 20
	chaosMinutes = 15
)

var _ = Describe("A chaos test", Label("chaos", "extended"), Serial, func() {
	It("loses no data of a disk, and never lets two VMs write to the same disk", func(ctx context.Context) {
		env := newChaosEnv(ctx)
		scenario := chaos.Scenario{
			Environment: env, Faults: env.faults(), MeanPause: 3 * time.Second, Disks: env.createDisks(ctx, chaos.Size("CHAOS_VMS", chaosVMs)),
			Seed:     chaos.Seed(),
			Duration: time.Duration(chaos.Size("CHAOS_MINUTES", chaosMinutes)) * time.Minute,
			Log: func(format string, arguments ...any) {
				fmt.Fprintf(GinkgoWriter, time.Now().Format(time.TimeOnly)+" "+format+"\n", arguments...)
			},
		}
		violations := scenario.Run(ctx)
		AddReportEntry("calls and events", scenario.Counts())
		Expect(violations).To(BeEmpty())
		for kind, count := range scenario.Totals() {
			chaos.AddToReport(kind, chaos.Cases{Group: "chaos", Tried: count, Passed: count})
		}
	}, NodeTimeout(90*time.Minute))
})

var _ = ReportAfterSuite("cases", chaos.ReportCases)

// chaosEnv is a testEnv that implements chaos.Environment.
type chaosEnv struct {
	*testEnv
	stemcellCID string
	agentEnv    map[string]any

	mutex      sync.Mutex
	sequence   int
	violations []string
}

func newChaosEnv(ctx context.Context) *chaosEnv {
	GinkgoHelper()
	base := newTestEnv(ctx)
	agentEnv, err := director.AgentEnv()
	Expect(err).NotTo(HaveOccurred())
	env := &chaosEnv{testEnv: base, stemcellCID: base.createStemcell(ctx, os.Getenv("E2E_STEMCELL")), agentEnv: agentEnv}
	tearDown, err := env.podFaults().SetUp(ctx)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx context.Context) { Expect(tearDown(ctx)).To(Succeed()) })
	return env
}

// createDisks creates disks of both volume modes.
func (e *chaosEnv) createDisks(ctx context.Context, count int) (disks []string) {
	GinkgoHelper()
	for i := range count {
		properties := map[string]any{}
		if i%4 == 3 {
			properties = movableDisks["Block"]
		}
		disks = append(disks, e.createDisk(ctx, 64, properties))
	}
	return disks
}

func (e *chaosEnv) NewVM(disk string) (cid string, arguments []any) {
	agentID := fmt.Sprintf("%s-%d", e.namespace, e.nextNumber())
	properties := map[string]any{"resources": map[string]any{"requests": map[string]any{"cpu": "20m"}}}
	return "agent-" + agentID, []any{agentID, e.stemcellCID, properties, manualNetwork(newAddress()), []string{disk}, e.agentEnv}
}

// counterScript increments a counter on the disk until the disk is unmounted. It records a violation if another writer changed the
// counter. $0 is the name of its process, $1 the disk's directory, and $2 the ID of this writer.
const counterScript = `
cd "$1" || exit
last=$(cat counter 2>/dev/null || echo 0)
while mountpoint -q "$1"; do
  if [[ $(cat writer) != "$2" || $(cat counter 2>/dev/null || echo 0) != "$last" ]]; then
    echo "$2 wrote $last, but found $(cat counter) by $(cat writer)" >>violations
    exit
  fi
  echo $((last + 1)) >counter.new && sync counter.new && mv counter.new counter && sync . || exit
  last=$((last + 1))
  sleep 0.1
done`

// exclusively precedes a script that must run neither together with another one for the disk $1 nor after a later one: a script can outlive
// its client, if the API server restarts. $2 is the number of the script. Programs in the background must close descriptor 9.
const exclusively = `
	exec 9>"/run/chaos-$1.lock" && flock 9 || exit
	[[ $2 -gt $(cat "/run/chaos-$1.last" 2>/dev/null || echo 0) ]] || exit
	echo "$2" >"/run/chaos-$1.last" || exit
`

// nextNumber returns the number of the next script or VM.
func (e *chaosEnv) nextNumber() int {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	e.sequence++
	return e.sequence
}

// runInVM runs a script in the VM, for less than a minute.
func (e *chaosEnv) runInVM(ctx context.Context, vm, script string, arguments ...string) (string, error) {
	callCtx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	command := append([]string{"exec", "-n", e.namespace, vm, "-c", "vm", "--", "timeout", "50", "bash", "-c", script, "chaos"}, arguments...)
	out, err := e.embedded.ControlPlane.Kubectl(callCtx, command...)
	return strings.TrimSpace(out), err
}

func (e *chaosEnv) StartCounter(ctx context.Context, vm, disk string) error {
	number := strconv.Itoa(e.nextNumber())
	_, err := e.runInVM(ctx, vm, exclusively+`set -e
		dir=/mnt/$1
		[[ -b /dev/bosh/$1 ]]
		mkdir -p "$dir"
		mountpoint -q "$dir" || mount "/dev/bosh/$1" "$dir"
		echo "$3" >"$dir/probe" && sync "$dir/probe"
		if pgrep -f "^counting-$1" >/dev/null; then exit 0; fi
		echo "$3" >"$dir/writer" && sync "$dir/writer"
		(exec setsid bash -c "$4" "counting-$1" "$dir" "$3") </dev/null >/dev/null 2>&1 9>&- &
		until pgrep -f "^counting-$1" >/dev/null; do sleep 0.1; done`,
		disk, number, vm+"-"+number, `exec -a "$0" bash -c '`+strings.ReplaceAll(counterScript, "'", `'\''`)+`' "$0" "$@"`)
	return err
}

func (e *chaosEnv) ReadCounter(ctx context.Context, vm, disk string) (int, error) {
	out, err := e.runInVM(ctx, vm, `set -e; mountpoint -q "/mnt/$1"; cd "/mnt/$1"; cat counter 2>/dev/null || echo 0; cat violations 2>/dev/null || true`, disk)
	if err != nil {
		return 0, err
	}
	counter, violations, _ := strings.Cut(out, "\n")
	if violations != "" {
		e.mutex.Lock()
		e.violations = append(e.violations, "disk "+disk+": "+violations)
		e.mutex.Unlock()
	}
	return strconv.Atoi(counter)
}

func (e *chaosEnv) StopCounter(ctx context.Context, vm, disk string) error {
	_, err := e.runInVM(ctx, vm, exclusively+`
		while pkill -f "^counting-$1"; do sleep 0.1; done
		! mountpoint -q "/mnt/$1" || umount "/mnt/$1"`, disk, strconv.Itoa(e.nextNumber()))
	return err
}

func (e *chaosEnv) Violations() []string {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	return e.violations
}

// faults returns all faults of the chaos test.
func (e *chaosEnv) faults() []chaos.Weighted[chaos.Fault] {
	restartKubelet := func(ctx context.Context, _ *rand.Rand) error {
		return e.node.RestartKubelet(context.WithoutCancel(ctx))
	}
	restartAPIServer := func(ctx context.Context, _ *rand.Rand) error {
		plane := e.embedded.ControlPlane
		return errors.Join(plane.Process("kube-apiserver").Stop(), plane.Start(context.WithoutCancel(ctx)))
	}
	return append(e.podFaults().Faults(),
		chaos.Weigh(1, chaos.Fault{Name: "the kubelet restarts", Inject: restartKubelet}),
		chaos.Weigh(1, chaos.Fault{Name: "the API server restarts", Inject: restartAPIServer}))
}

func (e *chaosEnv) podFaults() chaos.PodFaults {
	return chaos.PodFaults{Cluster: e.cluster, Namespace: e.namespace}
}

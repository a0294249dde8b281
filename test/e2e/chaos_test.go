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
	"bosh-kubernetes-cpi/test/director"
)

// Defaults for CHAOS_VMS and CHAOS_MINUTES.
const (
	chaosVMs     = 20
	chaosMinutes = 15
)

var _ = Describe("A chaos test", Label("chaos", "extended"), Serial, func() {
	It("loses no data of a disk and never lets two VMs write to one", func(ctx context.Context) {
		env := newChaosEnv(ctx)
		chaosTest := chaos.Scenario{
			Environment: env, Faults: env.faults(), MeanPause: 3 * time.Second, Disks: env.createDisks(ctx, intFromEnv("CHAOS_VMS", chaosVMs)),
			Seed:     uint64(intFromEnv("CHAOS_SEED", int(time.Now().Unix()))),
			Duration: time.Duration(intFromEnv("CHAOS_MINUTES", chaosMinutes)) * time.Minute,
			Log: func(format string, arguments ...any) {
				fmt.Fprintf(GinkgoWriter, time.Now().Format(time.TimeOnly)+" "+format+"\n", arguments...)
			},
		}
		AddReportEntry("seed", chaosTest.Seed)
		GinkgoWriter.Println("CHAOS_SEED", chaosTest.Seed)
		violations := chaosTest.Run(ctx)
		AddReportEntry("calls and events", chaosTest.Counts())
		Expect(violations).To(BeEmpty())
	}, NodeTimeout(90*time.Minute))
})

// intFromEnv returns the value of an environment variable, or fallback if it is not set.
func intFromEnv(variable string, fallback int) int {
	GinkgoHelper()
	value, ok := os.LookupEnv(variable)
	if !ok {
		return fallback
	}
	parsed, err := strconv.Atoi(value)
	Expect(err).NotTo(HaveOccurred(), variable)
	return parsed
}

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
	remove, err := env.podFaults().SetUp(ctx)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx context.Context) { Expect(remove(ctx)).To(Succeed()) })
	return env
}

// createDisks creates disks of both volume modes.
func (s *chaosEnv) createDisks(ctx context.Context, count int) (disks []string) {
	GinkgoHelper()
	for i := range count {
		properties := map[string]any{}
		if i%4 == 3 {
			properties = movableDisks["Block"]
		}
		disks = append(disks, s.createDisk(ctx, 64, properties))
	}
	return disks
}

func (s *chaosEnv) NewVM(disk string) (cid string, arguments []any) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.sequence++
	agent := fmt.Sprintf("%s-%d", s.namespace, s.sequence)
	small := map[string]any{"resources": map[string]any{"requests": map[string]any{"cpu": "20m"}}}
	return "agent-" + agent, []any{agent, s.stemcellCID, small, manualNetwork(newAddress()), []string{disk}, s.agentEnv}
}

// counterScript increments a counter on the disk until the disk is unmounted, and records a violation if another writer has
// changed it. $0 is its process name, $1 the disk's directory, $2 the ID of this writer.
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

func (s *chaosEnv) runInVM(ctx context.Context, vm, script string, arguments ...string) (string, error) {
	limited, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	command := append([]string{"exec", "-n", s.namespace, vm, "-c", "vm", "--", "bash", "-c", script, "chaos"}, arguments...)
	out, err := s.embedded.ControlPlane.Kubectl(limited, command...)
	return strings.TrimSpace(out), err
}

func (s *chaosEnv) StartCounter(ctx context.Context, vm, disk string) error {
	s.mutex.Lock()
	s.sequence++
	session := fmt.Sprintf("%s-%d", vm, s.sequence)
	s.mutex.Unlock()
	_, err := s.runInVM(ctx, vm, `set -e
		folder=/mnt/$1
		[[ -b /dev/bosh/$1 ]]
		mkdir -p "$folder"
		mountpoint -q "$folder" || mount "/dev/bosh/$1" "$folder"
		echo "$2" >"$folder/probe" && sync "$folder/probe"
		if pgrep -f "^counting-$1" >/dev/null; then exit 0; fi
		echo "$2" >"$folder/writer" && sync "$folder/writer"
		(exec -a "counting-$1" setsid bash -c "$3" "counting-$1" "$folder" "$2") </dev/null >/dev/null 2>&1 &`,
		disk, session, `exec -a "$0" bash -c '`+strings.ReplaceAll(counterScript, "'", `'\''`)+`' "$0" "$@"`)
	return err
}

func (s *chaosEnv) ReadCounter(ctx context.Context, vm, disk string) (int, error) {
	out, err := s.runInVM(ctx, vm, `set -e; mountpoint -q "/mnt/$1"; cd "/mnt/$1"; cat counter 2>/dev/null || echo 0; cat violations 2>/dev/null || true`, disk)
	if err != nil {
		return 0, err
	}
	counter, violations, _ := strings.Cut(out, "\n")
	if violations != "" {
		s.mutex.Lock()
		s.violations = append(s.violations, "disk "+disk+": "+violations)
		s.mutex.Unlock()
	}
	return strconv.Atoi(counter)
}

func (s *chaosEnv) StopCounter(ctx context.Context, vm, disk string) error {
	_, err := s.runInVM(ctx, vm, `
		while pkill -f "^counting-$1"; do sleep 0.1; done
		! mountpoint -q "/mnt/$1" || umount "/mnt/$1"`, disk)
	return err
}

func (s *chaosEnv) Violations() []string {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.violations
}

// faults returns all faults of the chaos test.
func (s *chaosEnv) faults() []chaos.Fault {
	return append(s.podFaults().Faults(),
		chaos.Fault{Name: "the kubelet restarts", Weight: 1, Inject: func(ctx context.Context, _ *rand.Rand) error {
			return s.node.RestartKubelet(context.WithoutCancel(ctx))
		}},
		chaos.Fault{Name: "the API server restarts", Weight: 1, Inject: func(ctx context.Context, _ *rand.Rand) error {
			plane := s.embedded.ControlPlane
			return errors.Join(plane.Process("kube-apiserver").Stop(), plane.Start(context.WithoutCancel(ctx)))
		}},
	)
}

func (s *chaosEnv) podFaults() chaos.PodFaults {
	return chaos.PodFaults{Cluster: s.cluster, Namespace: s.namespace}
}

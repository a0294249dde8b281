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

// How the storm is, unless the environment says otherwise.
const (
	chaosVMs     = 20
	chaosMinutes = 15
)

var _ = Describe("A storm", Label("storm", "extended"), Serial, func() {
	It("takes no disk's content, and no two machines write to one", func(ctx context.Context) {
		site := newChaosEnv(ctx)
		chaosTest := chaos.Scenario{
			Environment: site, Weather: site.faults(), MeanPause: 3 * time.Second, Disks: site.createDisks(ctx, intFromEnv("STORM_MACHINES", chaosVMs)),
			Seed:     uint64(intFromEnv("STORM_SEED", int(time.Now().Unix()))),
			Duration: time.Duration(intFromEnv("STORM_MINUTES", chaosMinutes)) * time.Minute,
			Log: func(format string, arguments ...any) {
				fmt.Fprintf(GinkgoWriter, time.Now().Format(time.TimeOnly)+" "+format+"\n", arguments...)
			},
		}
		AddReportEntry("seed", chaosTest.Seed)
		GinkgoWriter.Println("STORM_SEED", chaosTest.Seed)
		violations := chaosTest.Run(ctx)
		AddReportEntry("calls and events", chaosTest.Counts())
		Expect(violations).To(BeEmpty())
	}, NodeTimeout(90*time.Minute))
})

// intFromEnv is an environment variable's, or this one.
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

// chaosEnv is a world for a storm.
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
	env := newTestEnv(ctx)
	agentEnv, err := director.AgentEnv()
	Expect(err).NotTo(HaveOccurred())
	site := &chaosEnv{testEnv: env, stemcellCID: env.createStemcell(ctx, os.Getenv("E2E_STEMCELL")), agentEnv: agentEnv}
	remove, err := site.podFaults().SetUp(ctx)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx context.Context) { Expect(remove(ctx)).To(Succeed()) })
	return site
}

// createDisks are of both kinds of claims.
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

// counterScript is the program that counts: $0 is its name, $1 the folder, $2 what tells it from others.
const counterScript = `
cd "$1" || exit
had=$(cat counter 2>/dev/null || echo 0)
while mountpoint -q "$1"; do
  if [[ $(cat writer) != "$2" || $(cat counter 2>/dev/null || echo 0) != "$had" ]]; then
    echo "$2 had $had, and found $(cat counter) of $(cat writer)" >>violations
    exit
  fi
  echo $((had + 1)) >counter.new && sync counter.new && mv counter.new counter && sync . || exit
  had=$((had + 1))
  sleep 0.1
done`

func (s *chaosEnv) runInVM(ctx context.Context, vm, script string, arguments ...string) (string, error) {
	limited, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	command := append([]string{"exec", "-n", s.namespace, vm, "-c", "machine", "--", "bash", "-c", script, "storm"}, arguments...)
	out, err := s.embedded.ControlPlane.Kubectl(limited, command...)
	return strings.TrimSpace(out), err
}

func (s *chaosEnv) StartCounter(ctx context.Context, vm, disk string) error {
	s.mutex.Lock()
	s.sequence++
	session := fmt.Sprintf("%s-%d", vm, s.sequence)
	s.mutex.Unlock()
	_, err := s.runInVM(ctx, vm, `set -e
		at=/mnt/$1
		[[ -b /dev/bosh/$1 ]]
		mkdir -p "$at"
		mountpoint -q "$at" || mount "/dev/bosh/$1" "$at"
		echo "$2" >"$at/probe" && sync "$at/probe"
		if pgrep -f "^counting-$1" >/dev/null; then exit 0; fi
		echo "$2" >"$at/writer" && sync "$at/writer"
		(exec -a "counting-$1" setsid bash -c "$3" "counting-$1" "$at" "$2") </dev/null >/dev/null 2>&1 &`,
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

// faults is all that happens to the site.
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

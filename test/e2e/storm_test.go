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

	"bosh-kubernetes-cpi/test/director"
	"bosh-kubernetes-cpi/test/storm"
)

// How the storm is, unless the environment says otherwise.
const (
	stormMachines = 20
	stormMinutes  = 15
)

var _ = Describe("A storm", Label("storm", "extended"), Serial, func() {
	It("takes no disk's content, and no two machines write to one", func(ctx context.Context) {
		site := newStormSite(ctx)
		rages := storm.Storm{
			Site: site, Weather: site.weather(), Pause: 3 * time.Second, Disks: site.disks(ctx, number("STORM_MACHINES", stormMachines)),
			Seed:     uint64(number("STORM_SEED", int(time.Now().Unix()))),
			Duration: time.Duration(number("STORM_MINUTES", stormMinutes)) * time.Minute,
			Log: func(format string, arguments ...any) {
				fmt.Fprintf(GinkgoWriter, time.Now().Format(time.TimeOnly)+" "+format+"\n", arguments...)
			},
		}
		AddReportEntry("seed", rages.Seed)
		GinkgoWriter.Println("STORM_SEED", rages.Seed)
		violations := rages.Run(ctx)
		AddReportEntry("calls and events", rages.Counts())
		Expect(violations).To(BeEmpty())
	}, NodeTimeout(90*time.Minute))
})

// number is an environment variable's, or this one.
func number(variable string, otherwise int) int {
	GinkgoHelper()
	value, given := os.LookupEnv(variable)
	if !given {
		return otherwise
	}
	parsed, err := strconv.Atoi(value)
	Expect(err).NotTo(HaveOccurred(), variable)
	return parsed
}

// stormSite is a world for a storm.
type stormSite struct {
	*world
	stemcellCID string
	env         map[string]any

	mutex      sync.Mutex
	made       int
	violations []string
}

func newStormSite(ctx context.Context) *stormSite {
	GinkgoHelper()
	w := newWorld(ctx)
	env, err := director.AgentEnv()
	Expect(err).NotTo(HaveOccurred())
	site := &stormSite{world: w, stemcellCID: w.stemcell(ctx, os.Getenv("E2E_STEMCELL")), env: env}
	remove, err := site.pods().Prepare(ctx)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx context.Context) { Expect(remove(ctx)).To(Succeed()) })
	return site
}

// disks are of both kinds of claims.
func (s *stormSite) disks(ctx context.Context, count int) (disks []string) {
	GinkgoHelper()
	for i := range count {
		properties := map[string]any{}
		if i%4 == 3 {
			properties = movable["Block"]
		}
		disks = append(disks, s.createDisk(ctx, 64, properties))
	}
	return disks
}

func (s *stormSite) NewVM(disk string) (cid string, arguments []any) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.made++
	agent := fmt.Sprintf("%s-%d", s.namespace, s.made)
	small := map[string]any{"resources": map[string]any{"requests": map[string]any{"cpu": "20m"}}}
	return "agent-" + agent, []any{agent, s.stemcellCID, small, manual(newAddress()), []string{disk}, s.env}
}

// counting is the program that counts: $0 is its name, $1 the folder, $2 what tells it from others.
const counting = `
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

func (s *stormSite) in(ctx context.Context, vm, script string, arguments ...string) (string, error) {
	limited, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	command := append([]string{"exec", "-n", s.namespace, vm, "-c", "machine", "--", "bash", "-c", script, "storm"}, arguments...)
	out, err := s.embedded.ControlPlane.Kubectl(limited, command...)
	return strings.TrimSpace(out), err
}

func (s *stormSite) Count(ctx context.Context, vm, disk string) error {
	s.mutex.Lock()
	s.made++
	session := fmt.Sprintf("%s-%d", vm, s.made)
	s.mutex.Unlock()
	_, err := s.in(ctx, vm, `set -e
		at=/mnt/$1
		[[ -b /dev/bosh/$1 ]]
		mkdir -p "$at"
		mountpoint -q "$at" || mount "/dev/bosh/$1" "$at"
		echo "$2" >"$at/probe" && sync "$at/probe"
		if pgrep -f "^counting-$1" >/dev/null; then exit 0; fi
		echo "$2" >"$at/writer" && sync "$at/writer"
		(exec -a "counting-$1" setsid bash -c "$3" "counting-$1" "$at" "$2") </dev/null >/dev/null 2>&1 &`,
		disk, session, `exec -a "$0" bash -c '`+strings.ReplaceAll(counting, "'", `'\''`)+`' "$0" "$@"`)
	return err
}

func (s *stormSite) Read(ctx context.Context, vm, disk string) (int, error) {
	out, err := s.in(ctx, vm, `set -e; mountpoint -q "/mnt/$1"; cd "/mnt/$1"; cat counter 2>/dev/null || echo 0; cat violations 2>/dev/null || true`, disk)
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

func (s *stormSite) Stop(ctx context.Context, vm, disk string) error {
	_, err := s.in(ctx, vm, `
		while pkill -f "^counting-$1"; do sleep 0.1; done
		! mountpoint -q "/mnt/$1" || umount "/mnt/$1"`, disk)
	return err
}

func (s *stormSite) Violations() []string {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.violations
}

// weather is all that happens to the site.
func (s *stormSite) weather() []storm.Weather {
	return append(s.pods().Weather(),
		storm.Weather{Name: "the kubelet restarts", Weight: 1, Happens: func(ctx context.Context, _ *rand.Rand) error {
			return s.node.RestartKubelet(context.WithoutCancel(ctx))
		}},
		storm.Weather{Name: "the API server restarts", Weight: 1, Happens: func(ctx context.Context, _ *rand.Rand) error {
			plane := s.embedded.ControlPlane
			return errors.Join(plane.Process("kube-apiserver").Stop(), plane.Start(context.WithoutCancel(ctx)))
		}},
	)
}

func (s *stormSite) pods() storm.Pods { return storm.Pods{Cluster: s.cluster, Namespace: s.namespace} }

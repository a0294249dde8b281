package main_test

import (
	"encoding/json"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/gexec"
	"sigs.k8s.io/yaml"

	"bosh-kubernetes-cpi/cmd/kubectl-bosh/instances"
	"bosh-kubernetes-cpi/test/director"
)

var _ = Describe("kubectl bosh ps", func() {
	var w world
	BeforeEach(func(ctx SpecContext) { w = newWorld(ctx) })

	// rows are the cells of the table below its head.
	rows := func(table string) (rows [][]string) {
		for line := range strings.Lines(table) {
			rows = append(rows, strings.Fields(line))
		}
		return rows[1:]
	}

	It("lists instances by deployment, group and index, with their Pods, nodes, addresses, disks and Services", func(ctx SpecContext) {
		service := map[string]any{"services": []any{map[string]any{"name": "front", "ports": []any{80}}}}
		for i, agent := range []string{"c", "b", "a"} {
			w.create(ctx, agent, fmt.Sprintf("10.9.8.3%d", i+1), service)
			w.name(ctx, agent, "cf", "web", []string{"10", "2", "0"}[i])
		}
		w.create(ctx, "d", "10.9.8.40", nil)
		w.name(ctx, "d", "abc", "db", "0")
		disk := w.attachDisk(ctx, "d")

		table := w.prints("ps")
		Expect(table).To(MatchRegexp(`^DEPLOYMENT +INSTANCE +STATE +RESTARTS +POD +NODE +ADDRESSES +DISKS +SERVICES +AGE\n`))
		Expect(rows(table)).To(HaveExactElements(
			HaveExactElements("abc", "db/0", "Running", "0", "agent-d", "node-a", "10.9.8.40", "64Mi", "<none>", Not(BeEmpty())),
			HaveExactElements("cf", "web/0", "Running", "0", "agent-a", "node-a", "10.9.8.33", "<none>", "front", Not(BeEmpty())),
			ContainElement("web/2"), ContainElement("web/10")))
		Expect(rows(w.prints("ps", "--deployment", "abc", "-o", "wide"))).To(HaveExactElements(
			ContainElements("my-director", "id-of-d", disk, stemcellCID)))
	})

	It("prints them for programs", func(ctx SpecContext) {
		w.create(ctx, "old", address, nil)
		w.name(ctx, "old", "cf", "web", "0")
		var fromJSON, fromYAML struct{ Instances []instances.Instance }
		Expect(json.Unmarshal([]byte(w.prints("ps", "-o", "json")), &fromJSON)).To(Succeed())
		Expect(yaml.Unmarshal([]byte(w.prints("ps", "-o", "yaml")), &fromYAML)).To(Succeed())
		Expect(fromJSON).To(Equal(fromYAML))
		Expect(fromJSON.Instances).To(ConsistOf(And(
			HaveField("Director", "my-director"), HaveField("DirectorUUID", director.UUID), HaveField("Deployment", "cf"),
			HaveField("Group", "web"), HaveField("Index", "0"), HaveField("ID", "id-of-old"), HaveField("Pod", "agent-old"),
			HaveField("Ready", true), HaveField("Addresses", ConsistOf(address)))))
		Expect(w.prints("ps", "-o", "name")).To(Equal("pod/agent-old\n"))
	})

	It("leaves out those of other directors and deployments", func(ctx SpecContext) {
		w.create(ctx, "old", address, nil)
		w.name(ctx, "old", "cf", "web", "0")
		Expect(w.prints("ps", "-o", "name", "--director", director.UUID)).NotTo(BeEmpty())
		Expect(w.prints("ps", "-o", "name", "--director", "my-director", "--deployment", "cf")).NotTo(BeEmpty())
		Expect(w.prints("ps", "-o", "name", "--director", "another")).To(BeEmpty())
		session := w.run("ps", "--deployment", "another")
		Expect(session).To(gexec.Exit(0))
		Expect(session.Err).To(gbytes.Say("No instances found in namespace " + w.namespace))
	})

	It("shows machines that BOSH has not named, or that do not come up", func(ctx SpecContext) {
		w.createDynamic(ctx, "old", nil)
		w.unready(ctx, "agent-old")
		Expect(rows(w.prints("ps"))).To(HaveExactElements(HaveExactElements(
			"<none>", "agent-old", "Booting", "0", "agent-old", "node-a", Not(BeEmpty()), "<none>", "<none>", Not(BeEmpty()))))
	})

	It("refuses an output that it does not have", func() {
		session := w.run("ps", "-o", "html")
		Expect(session).To(gexec.Exit(1))
		Expect(session.Err).To(gbytes.Say(`^error: --output "html" is none of wide, json, yaml, name\n`))
	})
})

var _ = Describe("kubectl bosh describe", func() {
	It("shows an instance's Pods, disks, Services, budget and events", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.must(ctx, "create_vm", "old", stemcellCID, map[string]any{
			"disruption_budget": map[string]any{"max_unavailable": 1},
			"services":          []any{map[string]any{"name": "front", "ports": []any{map[string]any{"port": 80, "target_port": 8080}}}},
		}, manual(address), []string{}, map[string]any{"bosh": map[string]any{"group": "d-cf-web"}})
		w.name(ctx, "old", "cf", "web", "0")
		disk := w.attachDisk(ctx, "old")
		w.event(ctx, "agent-old", "Pulled", "the image\nwas there")

		shown := w.prints("describe", "web/0")
		for _, each := range []string{
			`Instance: +web/0`, `ID: +id-of-old`, `Deployment: +cf`, `Director: +my-director ` + director.UUID, `Pod: +agent-old`,
			`State: +Running, ready`, `Addresses: +10\.9\.8\.7`, `Stemcell: +` + stemcellCID, `Container machine: +0 restarts`,
			`  ` + disk + ` +64Mi +attached, class ` + w.namespace + `, by ` + disk + `-attachment on node-a`,
			`  ` + disk + ` +1Gi +Bound, volume ` + w.namespace, `  ` + disk + `-attachment +Running +on node-a`,
			`  front +ClusterIP +10\.246\.\d+\.\d+ +80→8080/TCP`, `  d-cf-web +\d of \d healthy, \d may be taken away`,
			`  \S+ ago +Pulled +agent-old +the image was there`,
		} {
			Expect(shown).To(MatchRegexp(`(?m)^` + each + `$`))
		}
	})

	DescribeTable("finds an instance by", func(ctx SpecContext, name string) {
		w := newWorld(ctx)
		w.create(ctx, "old", address, nil)
		w.name(ctx, "old", "cf", "web", "0")
		Expect(w.prints("describe", name)).To(MatchRegexp(`Pod: +agent-old\n`))
	},
		Entry("its group and index", "web/0"),
		Entry("its group and id", "web/id-of-old"),
		Entry("its id", "id-of-old"),
		Entry("its CID", "agent-old"),
		Entry("its Pod, as kubectl names it", "pod/agent-old"),
	)

	It("names what a name may mean, and takes the deployment that is given", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.create(ctx, "old", address, nil)
		w.name(ctx, "old", "cf", "web", "0")
		w.create(ctx, "new", "10.9.8.8", nil)
		w.name(ctx, "new", "shop", "web", "0")
		session := w.run("describe", "web/0")
		Expect(session).To(gexec.Exit(1))
		Expect(session.Err).To(gbytes.Say(`^error: "web/0" are several: agent-old \(deployment cf, director my-director\), agent-new \(deployment shop`))
		Expect(w.prints("describe", "web/0", "--deployment", "shop")).To(MatchRegexp(`Pod: +agent-new\n`))
		session = w.run("describe", "web/7")
		Expect(session).To(gexec.Exit(1))
		Expect(session.Err).To(gbytes.Say("^error: no instance \"web/7\" in namespace " + w.namespace + ": `kubectl bosh ps` lists"))
	})
})

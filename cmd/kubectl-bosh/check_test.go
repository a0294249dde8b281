package main_test

import (
	"encoding/json"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/gexec"

	calls "bosh-kubernetes-cpi/cpi"
	"bosh-kubernetes-cpi/cpi/preflight"
	"bosh-kubernetes-cpi/test/director"
)

var _ = Describe("kubectl bosh check", func() {
	var w world
	BeforeEach(func(ctx SpecContext) { w = newWorld(ctx) })

	It("looks whether the CPI can work in the namespace, as cpi -check does", func() {
		w.operator = plane.Kubeconfig("admin")
		session := w.run("check", "--namespace", w.namespace)
		Expect(session).To(gexec.Exit(0))
		Expect(session.Out).To(gbytes.Say(`^CHECK +KIND +RESULT +WHAT IS THERE, AND WHAT TO DO\napi +required +ok +https://127\.0\.0\.1:\d+ answers, namespace ` + w.namespace + `\n`))
		Expect(session.Out).To(gbytes.Say(`create-vm +required +ok +would be admitted`))
	})

	It("fails for who has not the CPI's rights, and prints that for programs", func() {
		session := w.run("check", "-o", "json")
		Expect(session).To(gexec.Exit(1))
		var results []preflight.Result
		Expect(json.Unmarshal(session.Out.Contents(), &results)).To(Succeed())
		Expect(results).To(HaveLen(len(preflight.Checks())))
		Expect(results).To(ContainElement(And(HaveField("Check", "rights"), HaveField("Verdict", preflight.Fails))))
		Expect(session.Err.Contents()).To(BeEmpty())
	})
})

var _ = Describe("kubectl bosh collect", func() {
	var w world
	BeforeEach(func(ctx SpecContext) {
		w = newWorld(ctx)
		w.create(ctx, "old", address, nil)
		w.operator = plane.Kubeconfig("admin")
	})

	It("lists what calls have left, and removes it when that is confirmed", func() {
		args := []string{"collect", "--namespace", w.namespace, "--director", director.UUID, "--grace", "1ms"}
		Expect(w.prints(args...)).To(MatchRegexp(
			`^Pod ` + w.namespace + `/agent-old \(\d+s old\): a create_vm that was cut short has left it: .*: would be deleted\nnothing was changed; --confirm does it\n$`))
		var found []calls.CollectionResult
		Expect(json.Unmarshal([]byte(w.prints(append(args, "-o", "json")...)), &found)).To(Succeed())
		Expect(found).To(ConsistOf(And(HaveField("Kind", "Pod"), HaveField("Name", "agent-old"), HaveField("Outcome", "would be deleted"))))
		Expect(w.prints(append(args, "--confirm")...)).To(HaveSuffix(": deleted\n"))
		Eventually(func() string { return w.prints(args...) }).Should(Equal("nothing is left over\n"))
		Expect(w.prints(append(args, "-o", "json")...)).To(Equal("[]\n"))
	})

	It("asks whose they are, and names who has machines there", func() {
		session := w.run("collect", "--namespace", w.namespace)
		Expect(session).To(gexec.Exit(1))
		Expect(session.Err).To(gbytes.Say(`^error: whose left-overs\? Name the director with --director UUID.*` + director.UUID))
	})
})

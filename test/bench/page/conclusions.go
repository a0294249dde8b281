package page

import (
	"cmp"
	"fmt"
	"slices"

	"bosh-kubernetes-cpi/test/bench/report"
)

// ratio returns the ratio of two medians.
func ratio(value, reference report.Distribution) float64 { return value.Median() / reference.Median() }

// concludeCalls compares the values of info and has_vm with curl's, which are the third row.
func concludeCalls(rows []row) string {
	if len(rows) < 3 {
		return ""
	}
	return fmt.Sprintf("%s has %.2f times and %s %.2f times the value of %s, which gets a Pod.",
		rows[0].name, ratio(rows[0].values, rows[2].values), rows[1].name, ratio(rows[1].values, rows[2].values), rows[2].name)
}

// concludeScale compares the smallest and the largest number of VMs.
func concludeScale(sizes []report.ScaleResult, costs []report.Cost) string {
	first, last := 0, len(sizes)-1
	return fmt.Sprintf("With %d VMs, the call takes %.1f times as long as with %d.",
		sizes[last].VMs, ratio(costs[last].Wall, costs[first].Wall), sizes[first].VMs)
}

func concludeDeploy(d report.Deploy) string {
	return fmt.Sprintf("The CPI takes %.2f times as long as the minimal client.", d.Seconds/d.Bare)
}

func concludeNode(n *report.Node) string {
	return fmt.Sprintf("create_vm takes %.2f times as long as the minimal client, which takes %.2f times as long as the init program alone. "+
		"attach_disk and detach_disk take %.2f and %.2f times as long as the start and the end of a Pod with the disk's PVC.",
		ratio(n.Create, n.ClientStart), ratio(n.ClientStart, n.InitStart), ratio(n.Attach, n.DiskPodStart), ratio(n.Detach, n.DiskPodEnd))
}

func concludeTimeline(rows []timelineRow) string {
	if len(rows) == 0 {
		return ""
	}
	longest := slices.MaxFunc(rows, func(a, b timelineRow) int { return cmp.Compare(a.To-a.From, b.To-b.From) })
	return "Most time passes before: " + longest.What + "."
}

func concludeObjects(objects []report.Object, node *report.Node) string {
	total, scripts := 0, 0
	for _, object := range objects {
		total, scripts = total+object.Bytes, scripts+object.Scripts
	}
	if total == 0 {
		return ""
	}
	text := fmt.Sprintf("A VM with a disk needs %s, of which scripts are %d %%.", formatBytes(int64(total)), 100*scripts/total)
	if node != nil && node.BootWrites.Count > 0 {
		text += fmt.Sprintf(" The boot of a VM writes its Pod %d times, %s in total.", node.BootWrites.Count, formatBytes(int64(node.BootWrites.Bytes)))
	}
	return text
}

package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"bosh-kubernetes-cpi/cmd/kubectl-bosh/instances"
)

func newDescribeCommand(conn *connection) *cobra.Command {
	var filter instances.Filter
	command := &cobra.Command{
		Use:   "describe INSTANCE",
		Short: "Show an instance with its Pods, processes, disks, Services and Events",
		Long: `Show an instance and its objects: the VM Pod (with the reason if it is not ready), the processes of its jobs, disks,
PersistentVolumeClaims, attachment and helper Pods, Services, PodDisruptionBudgets, and the Events of these objects. The state of
processes requires permission to create pods/exec.`,
		Example: `  # Show the first instance of the group router
  kubectl bosh describe -n bosh router/0`,
		Args:              oneInstance,
		ValidArgsFunction: completeInstance(conn, &filter),
		RunE: func(command *cobra.Command, args []string) error {
			client, _, err := conn.newClient()
			if err != nil {
				return err
			}
			details, err := instances.Describe(command.Context(), client, filter, args[0])
			if err != nil {
				return err
			}
			return describe(command.OutOrStdout(), details, listProcesses(command, details))
		},
	}
	addFilterFlags(command.Flags(), &filter)
	return command
}

// monitTimeout limits the time for the state of processes: a lost node does not respond.
const monitTimeout = 15 * time.Second

// listProcesses returns a line for each process of the instance's jobs, with its state as monit shows it, or one line with the reason why
// the processes are unknown.
func listProcesses(command *cobra.Command, d instances.Details) (processes []string) {
	if d.VMPod.Status.Phase != corev1.PodRunning {
		return []string{"<unknown>: the VM is not running"}
	}
	ctx, cancel := context.WithTimeout(command.Context(), monitTimeout)
	defer cancel()
	arguments := kubectlCommand(command, d.Pod, []string{"exec"}, "sh", "-c", "PATH=/var/vcap/bosh/bin:$PATH exec monit summary")
	kubectl := exec.CommandContext(ctx, arguments[0], arguments[1:]...)
	var stderr strings.Builder
	kubectl.Stderr = &stderr
	out, err := kubectl.Output()
	for _, process := range monitProcess.FindAllStringSubmatch(string(out), -1) {
		processes = append(processes, process[1]+"\t"+process[2])
	}
	switch {
	case len(processes) > 0: // kubectl may also have printed warnings
	case ctx.Err() != nil:
		return []string{"<unknown>: no response within " + monitTimeout.String()}
	case stderr.Len() > 0: // monit exits with 0 also if its daemon does not run
		return []string{"<unknown>: " + oneLine(stderr.String())}
	case err != nil:
		return []string{"<unknown>: " + err.Error()}
	}
	return processes
}

// monitProcess matches a line of `monit summary` about a process.
var monitProcess = regexp.MustCompile(`(?m)^Process '(.+)' +(.+?) *$`)

// describe prints a section for each kind of object, like `kubectl describe`.
func describe(to io.Writer, d instances.Details, processes []string) error {
	describeProcesses := func(to io.Writer, _ instances.Details) {
		fmt.Fprintln(to, "Processes:"+noneIf(len(processes) == 0))
		for _, process := range processes {
			fmt.Fprintln(to, "  "+process)
		}
	}
	for _, section := range []func(io.Writer, instances.Details){
		describeInstance, describeContainers, describeProcesses, describeDisks, describePVCs, describeHelpers, describeServices,
		describePDBs, describeEvents,
	} {
		table := newTable(to)
		section(table, d)
		if err := table.Flush(); err != nil {
			return err
		}
	}
	return nil
}

func describeInstance(to io.Writer, d instances.Details) {
	for _, field := range []struct{ name, value string }{
		{"Instance", d.Name()},
		{"ID", d.ID},
		{"Deployment", d.Deployment},
		{"Director", strings.TrimSpace(d.Director + " " + d.DirectorUUID)},
		{"Namespace", d.Namespace},
		{"Pod", d.Pod},
		{"State", describeState(d)},
		{"Node", d.Node},
		{"Addresses", strings.Join(d.Addresses, ", ")},
		{"Stemcell", d.Stemcell},
		{"Created", d.Created.Format(time.RFC1123Z)},
	} {
		fmt.Fprintf(to, "%s:\t%s\n", field.name, cmp.Or(field.value, "<none>"))
	}
}

func noneIf(none bool) string {
	if none {
		return "\t<none>"
	}
	return ""
}

func describeState(d instances.Details) string {
	parts := []string{d.State}
	if d.Ready {
		parts = append(parts, "ready")
	}
	if message := d.VMPod.Status.Message; message != "" {
		parts = append(parts, message)
	}
	for _, condition := range d.VMPod.Status.Conditions {
		if condition.Status == corev1.ConditionFalse && condition.Message != "" {
			parts = append(parts, fmt.Sprintf("%s: %s", condition.Type, oneLine(condition.Message)))
		}
	}
	return strings.Join(parts, ", ")
}

// describeContainers prints the restarts and the last exit of the VM's containers.
func describeContainers(to io.Writer, d instances.Details) {
	for _, status := range d.VMPod.Status.ContainerStatuses {
		fmt.Fprintf(to, "Container %s:\t%d restarts%s\n", status.Name, status.RestartCount, describeWaiting(status))
		if terminated := status.LastTerminationState.Terminated; terminated != nil {
			fmt.Fprintf(to, "  last exit\t%s, status %d, %s: %s\n",
				terminated.Reason, terminated.ExitCode, timeAgo(terminated.FinishedAt), oneLine(terminated.Message))
		}
	}
}

func describeWaiting(status corev1.ContainerStatus) string {
	if status.State.Waiting == nil {
		return ""
	}
	return ", " + status.State.Waiting.Reason + ": " + oneLine(status.State.Waiting.Message)
}

func describeDisks(to io.Writer, d instances.Details) {
	fmt.Fprintln(to, "Disks:"+noneIf(len(d.Disks) == 0))
	for _, disk := range d.Disks {
		fmt.Fprintf(to, "  %s\t%s\t%s\n", disk.CID, disk.Size, describeDisk(disk))
	}
}

// describePVCs prints the PVCs of the disks and of the VM's ephemeral disk.
func describePVCs(to io.Writer, d instances.Details) {
	fmt.Fprintln(to, "PersistentVolumeClaims:"+noneIf(len(d.PVCs) == 0))
	for _, pvc := range d.PVCs {
		capacity, state := pvc.Status.Capacity[corev1.ResourceStorage], string(pvc.Status.Phase)
		if pvc.DeletionTimestamp != nil {
			state = "Terminating"
		}
		fmt.Fprintf(to, "  %s\t%s\t%s, volume %s\n", pvc.Name, capacity.String(), state, cmp.Or(pvc.Spec.VolumeName, "<none>"))
	}
}

func describeHelpers(to io.Writer, d instances.Details) {
	fmt.Fprintln(to, "Attachment and helper Pods:"+noneIf(len(d.HelperAndAttachmentPods) == 0))
	for _, pod := range d.HelperAndAttachmentPods {
		fmt.Fprintf(to, "  %s\t%s\ton %s\n", pod.Name, pod.Status.Phase, cmp.Or(pod.Spec.NodeName, "no node"))
	}
}

func describeDisk(disk instances.Disk) string {
	description := strings.ToLower(disk.State)
	if disk.StorageClass != "" {
		description += ", class " + disk.StorageClass
	}
	if disk.Attachment != "" {
		description += ", attachment Pod " + disk.Attachment + " on " + cmp.Or(disk.Node, "no node")
	}
	return description
}

func describeServices(to io.Writer, d instances.Details) {
	fmt.Fprintln(to, "Services:"+noneIf(len(d.Services) == 0))
	for _, service := range d.Services {
		addresses := append([]string{service.Spec.ClusterIP}, service.Spec.ExternalIPs...)
		for _, ingress := range service.Status.LoadBalancer.Ingress {
			addresses = append(addresses, cmp.Or(ingress.IP, ingress.Hostname))
		}
		var ports []string
		for _, port := range service.Spec.Ports {
			ports = append(ports, fmt.Sprintf("%d→%s/%s", port.Port, port.TargetPort.String(), port.Protocol))
		}
		fmt.Fprintf(to, "  %s\t%s\t%s\t%s\n", service.Name, service.Spec.Type, strings.Join(addresses, ","), strings.Join(ports, ","))
	}
}

func describePDBs(to io.Writer, d instances.Details) {
	fmt.Fprintln(to, "PodDisruptionBudgets:"+noneIf(len(d.PDBs) == 0))
	for _, pdb := range d.PDBs {
		fmt.Fprintf(to, "  %s\t%d of %d healthy, %d disruptions allowed\n",
			pdb.Name, pdb.Status.CurrentHealthy, pdb.Status.ExpectedPods, pdb.Status.DisruptionsAllowed)
	}
}

func describeEvents(to io.Writer, d instances.Details) {
	fmt.Fprintln(to, "Events:"+noneIf(len(d.Events) == 0))
	for _, event := range d.Events {
		fmt.Fprintf(to, "  %s\t%s\t%s\t%s\n", timeAgo(instances.LastSeen(event)), event.Reason, event.InvolvedObject.Name, oneLine(event.Message))
	}
}

func timeAgo(t metav1.Time) string {
	return duration.HumanDuration(time.Since(t.Time)) + " ago"
}

func oneLine(message string) string { return strings.Join(strings.Fields(message), " ") }

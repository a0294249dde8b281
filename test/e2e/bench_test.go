//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"bosh-kubernetes-cpi/test/director"
	"bosh-kubernetes-cpi/test/embedded"
)

// BenchmarkDisk times attach_disk and detach_disk beside the start of a bare Pod on the same node in
// the same run. It is no test: nothing fails for being slow.
func BenchmarkDisk(b *testing.B) {
	ctx, cluster := b.Context(), embedded.NewCluster(os.Getenv("CLUSTER_DIR"), 1)
	config, err := clientcmd.BuildConfigFromFlags("", cluster.Kubeconfig())
	must(b, err)
	client, err := kubernetes.NewForConfig(config)
	must(b, err)
	namespace := fmt.Sprintf("bench-%d", os.Getpid())
	_, err = client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	must(b, err)
	must(b, embedded.Eventually(ctx, time.Minute, "the namespace's service account", func(ctx context.Context) (bool, error) {
		_, err := client.CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{})
		return err == nil, nil
	}))
	path := filepath.Join(b.TempDir(), "cpi.json")
	must(b, director.WriteConfig(path, cluster.Kubeconfig(), namespace, nil))
	program, err := filepath.Abs("../../bin/cpi")
	must(b, err)
	d := &director.Director{CPI: program, Config: path}
	call := func(method string, arguments ...any) director.Response {
		response, err := d.Call(ctx, method, arguments...)
		must(b, err)
		if response.Error != nil {
			b.Fatal(method, response.Error)
		}
		return response
	}
	properties, err := stemcellProperties(os.Getenv("E2E_STEMCELL"))
	must(b, err)
	stemcell := call("create_stemcell", "image", properties).Text()
	call("create_vm", namespace, stemcell, map[string]any{}, map[string]any{"default": map[string]any{"type": "dynamic"}}, []string{}, map[string]any{})
	vm := "agent-" + namespace
	disk := call("create_disk", 64, map[string]any{}, nil).Text()
	call("attach_disk", vm, disk) // its volume is provisioned at first use
	call("detach_disk", vm, disk)

	var bare, attach, detach, gone time.Duration
	for b.Loop() {
		bare += timed(func() { must(b, startBarePod(ctx, cluster, namespace)) })
		gone += timed(func() {
			_, err := cluster.ControlPlane.Kubectl(ctx, "delete", "-n", namespace, "pod", "bare")
			must(b, err)
		})
		attach += timed(func() { call("attach_disk", vm, disk) })
		detach += timed(func() { call("detach_disk", vm, disk) })
	}
	per := func(d time.Duration) float64 { return float64(d.Milliseconds()) / float64(b.N) }
	b.ReportMetric(per(bare), "ms/bare-pod-start")
	b.ReportMetric(per(attach), "ms/attach")
	b.ReportMetric(per(gone), "ms/bare-pod-end")
	b.ReportMetric(per(detach), "ms/detach")
	b.ReportMetric(per(attach)/per(bare), "attach/bare-pod-start")
	call("delete_vm", vm)
	call("delete_disk", disk)
	must(b, client.CoreV1().Namespaces().Delete(ctx, namespace, metav1.DeleteOptions{}))
}

func must(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func timed(do func()) time.Duration {
	started := time.Now()
	do()
	return time.Since(started)
}

func startBarePod(ctx context.Context, cluster *embedded.Cluster, namespace string) error {
	manifest := fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"bare","namespace":%q},"spec":{"terminationGracePeriodSeconds":1,
		"nodeSelector":{"kubernetes.io/hostname":"node-1"},"containers":[{"name":"c","image":%q,"command":["sh","-c","sleep 1000"]}]}}`, namespace, embedded.BusyboxImage)
	if _, err := embedded.RunInput(ctx, manifest, "kubectl", "--kubeconfig", cluster.Kubeconfig(), "create", "-f", "-"); err != nil {
		return err
	}
	_, err := cluster.ControlPlane.Kubectl(ctx, "wait", "-n", namespace, "--for=condition=Ready", "--timeout=60s", "pod/bare")
	return err
}

package embedded

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

func (c *ControlPlane) etcdDir() string { return filepath.Join(c.Dir, "etcd") }

// BackUpEtcd copies the data of etcd to the directory, which must not exist. It pauses etcd, so that the copy is the state from which etcd
// would start after it is killed.
func (c *ControlPlane) BackUpEtcd(ctx context.Context, directory string) error {
	pid := c.Process("etcd").PID()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return fmt.Errorf("pause etcd: %w", err)
	}
	defer func() { _ = syscall.Kill(pid, syscall.SIGCONT) }()
	_, err := Run(ctx, "cp", "-a", c.etcdDir(), directory)
	return err
}

// RestoreEtcd replaces the data of etcd with the backup in the directory, and restarts the control plane. Like `etcdutl snapshot restore`
// with --bump-revision and --mark-compacted, it continues with a later revision than any before. Otherwise clients with cached data, such
// as kubelets, would not notice what changed.
func (c *ControlPlane) RestoreEtcd(ctx context.Context, directory string) error {
	last, err := c.etcdRevision(ctx)
	if err != nil {
		return err
	}
	if err := c.Stop(); err != nil {
		return err
	}
	if err := os.RemoveAll(c.etcdDir()); err != nil {
		return err
	}
	if _, err := Run(ctx, "cp", "-a", directory, c.etcdDir()); err != nil {
		return err
	}
	if err := c.Process("etcd").Start(); err != nil {
		return err
	}
	if err := c.bumpRevision(ctx, last); err != nil {
		return err
	}
	return c.Start(ctx)
}

// bumpRevision writes until the revision of etcd is greater than last, and discards all older revisions.
func (c *ControlPlane) bumpRevision(ctx context.Context, last int64) error {
	var current int64
	err := WaitUntil(ctx, time.Minute, "etcd to start", func(ctx context.Context) (_ bool, err error) {
		current, err = c.etcdRevision(ctx)
		return err == nil, err
	})
	for ; current <= last && err == nil; current++ {
		err = c.CallEtcd(ctx, "kv/put", map[string][]byte{"key": []byte("revision")}, &struct{}{})
	}
	if err != nil {
		return err
	}
	return c.CallEtcd(ctx, "kv/compaction", map[string]string{"revision": strconv.FormatInt(current, 10)}, &struct{}{})
}

// etcdRevision returns the revision of etcd, which increases with each write.
func (c *ControlPlane) etcdRevision(ctx context.Context) (int64, error) {
	var status struct{ Header struct{ Revision string } }
	if err := c.CallEtcd(ctx, "maintenance/status", struct{}{}, &status); err != nil {
		return 0, err
	}
	return strconv.ParseInt(status.Header.Revision, 10, 64)
}

// CallEtcd calls a method of etcd's JSON API, and decodes the response into result.
func (c *ControlPlane) CallEtcd(ctx context.Context, method string, arguments, result any) error {
	body, err := json.Marshal(arguments)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.etcdURL()+"/v3/"+method, bytes.NewReader(body))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		reason, _ := io.ReadAll(io.LimitReader(response.Body, 500))
		return fmt.Errorf("etcd %s: %s: %s", method, response.Status, reason)
	}
	if err := json.NewDecoder(response.Body).Decode(result); err != nil {
		return fmt.Errorf("etcd %s: %w", method, err)
	}
	return nil
}

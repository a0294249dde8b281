// Package dav replaces bosh-davcli, because module proxies do not provide it. BOSH's stemcells contain davcli as bosh-blobstore-dav,
// which the BOSH agent runs to fetch and store blobs on a WebDAV server. The replacement has the same arguments and configuration, and
// stores blobs at the same paths. It does not sign URLs, because only directors do that.
package dav

import (
	"context"
	"crypto/sha1" //nolint:gosec // part of the paths of blobs
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
)

// Config is the configuration file. The agent writes it, with the blobstore options of its settings.
type Config struct {
	Endpoint      string `json:"endpoint"`
	User          string `json:"user"`
	Password      string `json:"password"`
	RetryAttempts int    `json:"retry_attempts"` // 0 means 3
	TLS           struct {
		Cert struct {
			CA string `json:"ca"`
		} `json:"cert"`
	} `json:"tls"`
}

// Run runs the command in the arguments: -c CONFIG, then get BLOB FILE, put FILE BLOB, exists BLOB or delete BLOB.
func Run(ctx context.Context, arguments []string) error {
	flags := flag.NewFlagSet("bosh-blobstore-dav", flag.ContinueOnError)
	path := flags.String("c", "", "configuration `file`")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	client, err := newClient(*path)
	if err != nil {
		return err
	}
	words := flags.Args()
	switch command := strings.Join(words[:min(len(words), 1)], ""); {
	case command == "get" && len(words) == 3:
		return client.get(ctx, words[1], words[2])
	case command == "put" && len(words) == 3:
		return client.put(ctx, words[1], words[2])
	case command == "exists" && len(words) == 2:
		return client.send(ctx, http.MethodHead, words[1])
	case command == "delete" && len(words) == 2:
		return client.send(ctx, http.MethodDelete, words[1])
	}
	return fmt.Errorf("unknown command: %s", strings.Join(words, " "))
}

type client struct {
	config Config
	http   *http.Client
}

func newClient(path string) (*client, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read blobstore configuration: %w", err)
	}
	c := &client{http: &http.Client{}}
	if err := json.Unmarshal(content, &c.config); err != nil {
		return nil, fmt.Errorf("parse blobstore configuration %s: %w", path, err)
	}
	if ca := c.config.TLS.Cert.CA; ca != "" {
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM([]byte(ca)) {
			return nil, errors.New("blobstore configuration: tls.cert.ca is not a certificate")
		}
		c.http.Transport = &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: &tls.Config{RootCAs: roots}}
	}
	if c.config.RetryAttempts == 0 {
		c.config.RetryAttempts = 3
	}
	return c, nil
}

// blobURL returns the URL of a blob. The name of the blob's directory is the first byte of the SHA-1 of the blob's name.
func (c *client) blobURL(blob string) string {
	sum := sha1.Sum([]byte(blob)) //nolint:gosec // see above
	return fmt.Sprintf("%s/%02x/%s", strings.TrimSuffix(c.config.Endpoint, "/"), sum[0], blob)
}

// do sends a request, with retries, and returns a response with a 2xx status. The caller must close its body.
func (c *client) do(ctx context.Context, method, blob string, body func() (io.ReadCloser, int64, error)) (*http.Response, error) {
	var lastErr error
	for range c.config.RetryAttempts {
		request, err := http.NewRequestWithContext(ctx, method, c.blobURL(blob), http.NoBody)
		if err != nil {
			return nil, err
		}
		if body != nil {
			if request.Body, request.ContentLength, err = body(); err != nil {
				return nil, err
			}
		}
		if c.config.User != "" {
			request.SetBasicAuth(c.config.User, c.config.Password)
		}
		response, err := c.http.Do(request)
		if err == nil && response.StatusCode/100 == 2 {
			return response, nil
		}
		if lastErr = err; err == nil {
			lastErr = fmt.Errorf("status %s", response.Status)
			_ = response.Body.Close()
			if response.StatusCode == http.StatusNotFound {
				break
			}
		}
	}
	return nil, fmt.Errorf("%s of blob %s: %w", method, blob, lastErr)
}

func (c *client) send(ctx context.Context, method, blob string) error {
	response, err := c.do(ctx, method, blob, nil)
	if err != nil {
		return err
	}
	return response.Body.Close()
}

func (c *client) get(ctx context.Context, blob, path string) error {
	response, err := c.do(ctx, http.MethodGet, blob, nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	if _, err := io.Copy(file, response.Body); err != nil {
		_ = file.Close()
		return fmt.Errorf("fetch blob %s: %w", blob, err)
	}
	return file.Close()
}

func (c *client) put(ctx context.Context, path, blob string) error {
	response, err := c.do(ctx, http.MethodPut, blob, func() (io.ReadCloser, int64, error) {
		file, err := os.Open(path)
		if err != nil {
			return nil, 0, err
		}
		info, err := file.Stat()
		if err != nil {
			return nil, 0, err
		}
		return file, info.Size(), nil
	})
	if err != nil {
		return err
	}
	return response.Body.Close()
}

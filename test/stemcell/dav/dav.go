// Package dav is a stand-in for bosh-davcli, which BOSH's stemcells carry as bosh-blobstore-dav, and which
// no module proxy serves: the BOSH agent runs it to fetch and store blobs at a WebDAV server. It takes the
// same arguments and configuration, and stores blobs at the same paths. It signs no URLs: directors do that.
package dav

import (
	"context"
	"crypto/sha1" //nolint:gosec // the paths of blobs have it
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

// Config is the file that the agent writes: the options of the blobstore in its settings.
type Config struct {
	Endpoint      string `json:"endpoint"`
	User          string `json:"user"`
	Password      string `json:"password"`
	RetryAttempts int    `json:"retry_attempts"` // 3 when 0
	TLS           struct {
		Cert struct {
			CA string `json:"ca"`
		} `json:"cert"`
	} `json:"tls"`
}

// Run does what the arguments say: -c CONFIG, then get BLOB FILE, put FILE BLOB, exists BLOB or delete BLOB.
func Run(ctx context.Context, arguments []string) error {
	flags := flag.NewFlagSet("bosh-blobstore-dav", flag.ContinueOnError)
	path := flags.String("c", "", "configuration")
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
		return nil, fmt.Errorf("reading the blobstore's configuration: %w", err)
	}
	c := &client{http: &http.Client{}}
	if err := json.Unmarshal(content, &c.config); err != nil {
		return nil, fmt.Errorf("reading the blobstore's configuration %s: %w", path, err)
	}
	if ca := c.config.TLS.Cert.CA; ca != "" {
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM([]byte(ca)) {
			return nil, errors.New("the blobstore's configuration: tls.cert.ca is no certificate")
		}
		c.http.Transport = &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: &tls.Config{RootCAs: roots}}
	}
	if c.config.RetryAttempts == 0 {
		c.config.RetryAttempts = 3
	}
	return c, nil
}

// blobURL is where a blob is: in one of 256 folders, by the first byte of its name's SHA-1.
func (c *client) blobURL(blob string) string {
	sum := sha1.Sum([]byte(blob)) //nolint:gosec // see above
	return fmt.Sprintf("%s/%02x/%s", strings.TrimSuffix(c.config.Endpoint, "/"), sum[0], blob)
}

// do sends a request, again when it fails, and returns the answer when its status is one of the 200s. The
// caller closes its body.
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
		return fmt.Errorf("fetching blob %s: %w", blob, err)
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

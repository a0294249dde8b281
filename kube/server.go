package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/rest"
)

// ServerInfo is what an API server reports about itself.
type ServerInfo struct {
	URL     string
	Version string // for example v1.36.3
	Minor   int    // for example 36; 0 if the version has another form
	// ClockSkew is how far the server's clock is ahead of this host's, rounded to a second.
	ClockSkew time.Duration
}

// GetServerInfo gets /version, which every authenticated user may read (ClusterRole system:public-info-viewer). It returns
// ErrUnauthorized if the server rejects the credentials, and ErrNotServed if it does not answer like an API server.
func (c *Client) GetServerInfo(ctx context.Context) (ServerInfo, error) {
	server := ServerInfo{URL: c.config.Host}
	client, err := rest.HTTPClientFor(c.config)
	if err != nil {
		return server, err
	}
	target, _, err := rest.DefaultServerUrlFor(c.config)
	if err != nil {
		return server, err
	}
	var sent, received time.Time
	answer, err := retry(ctx, c.retryPolicy, func(ctx context.Context) (*http.Response, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(target.String(), "/")+"/version", http.NoBody)
		if err != nil {
			return nil, err
		}
		sent = time.Now()
		response, err := client.Do(request)
		received = time.Now()
		return response, err
	})
	const action = "get /version"
	if err != nil {
		return server, explainCredentialError(c.config, translate(action, err))
	}
	defer answer.Body.Close()
	var version struct{ GitVersion, Minor string }
	err = json.NewDecoder(answer.Body).Decode(&version)
	switch {
	case answer.StatusCode == http.StatusUnauthorized:
		refused := &Error{Action: action, Kind: ErrUnauthorized, Err: errors.New(server.URL + " rejected the credentials")}
		return server, explainCredentialError(c.config, refused)
	case answer.StatusCode != http.StatusOK || err != nil || version.GitVersion == "":
		cause := fmt.Errorf("%s answered %s without a Kubernetes version", server.URL, answer.Status)
		return server, &Error{Action: action, Kind: ErrNotServed, Err: cause}
	}
	server.Version = version.GitVersion
	server.Minor, _ = strconv.Atoi(strings.TrimSuffix(version.Minor, "+"))
	if date, err := http.ParseTime(answer.Header.Get("Date")); err == nil {
		// The header has no fractions of a second, and the server may have written it at any time in between.
		halfway := sent.Add(received.Sub(sent) / 2)
		server.ClockSkew = date.Add(time.Second / 2).Sub(halfway).Round(time.Second)
	}
	return server, nil
}

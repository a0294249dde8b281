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

// ServerInfo is what an API server says of itself.
type ServerInfo struct {
	URL     string
	Version string // v1.36.3
	Minor   int    // 36; 0 when the version is of another form
	// ClockSkew is by how much its clock is ahead of this machine's, to a second.
	ClockSkew time.Duration
}

// GetServerInfo asks the API server what it is. Everyone whom it knows may ask that.
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
		refused := &Error{Action: action, Kind: ErrUnauthorized, Err: errors.New(server.URL + " does not accept the credentials")}
		return server, explainCredentialError(c.config, refused)
	case answer.StatusCode != http.StatusOK || err != nil || version.GitVersion == "":
		cause := fmt.Errorf("%s answers %s, and not with a version", server.URL, answer.Status)
		return server, &Error{Action: action, Kind: ErrNotServed, Err: cause}
	}
	server.Version = version.GitVersion
	server.Minor, _ = strconv.Atoi(strings.TrimSuffix(version.Minor, "+"))
	if date, err := http.ParseTime(answer.Header.Get("Date")); err == nil {
		// The header leaves out parts of a second, and may have been written at any time in between.
		halfway := sent.Add(received.Sub(sent) / 2)
		server.ClockSkew = date.Add(time.Second / 2).Sub(halfway).Round(time.Second)
	}
	return server, nil
}

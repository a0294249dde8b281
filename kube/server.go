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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// ServerInfo is what an API server reports about itself.
type ServerInfo struct {
	URL     string
	Version string // for example v1.36.3
	Minor   int    // for example 36; 0 if the version has an unknown format
	// ClockSkew is how far the server's clock is ahead of this host's, rounded to a second.
	ClockSkew time.Duration
}

// GetServerInfo gets /version, which every authenticated user may read (ClusterRole system:public-info-viewer). It returns
// ErrUnauthorized if the server rejects the credentials, and ErrNotServed if the response is not from an API server.
func (c *Client) GetServerInfo(ctx context.Context) (ServerInfo, error) {
	info := ServerInfo{URL: c.config.Host}
	baseURL, _, err := rest.DefaultServerUrlFor(c.config)
	if err != nil {
		return info, err
	}
	response, err := retry(ctx, c.retryPolicy, func(ctx context.Context) (*http.Response, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(baseURL.String(), "/")+"/version", http.NoBody)
		if err != nil {
			return nil, err
		}
		return c.http.Do(request)
	})
	const action = "get /version"
	if err != nil {
		return info, explainCredentialError(c.config, translate(action, err))
	}
	defer response.Body.Close()
	var version struct{ GitVersion, Minor string }
	err = json.NewDecoder(response.Body).Decode(&version)
	switch {
	case response.StatusCode == http.StatusUnauthorized:
		rejected := &Error{Action: action, Kind: ErrUnauthorized, Err: errors.New(info.URL + " rejected the credentials")}
		return info, explainCredentialError(c.config, rejected)
	case response.StatusCode != http.StatusOK || err != nil || version.GitVersion == "":
		cause := fmt.Errorf("response of %s (%s) contains no Kubernetes version", info.URL, response.Status)
		return info, &Error{Action: action, Kind: ErrNotServed, Err: cause}
	}
	info.Version = version.GitVersion
	info.Minor, _ = strconv.Atoi(strings.TrimSuffix(version.Minor, "+"))
	now := time.Now()
	if server := c.ServerTime(now); !server.IsZero() {
		info.ClockSkew = server.Sub(now).Round(time.Second)
	}
	return info, nil
}

// ListAPIGroups returns the names of the API groups that the cluster serves. Every authenticated user may list them (ClusterRole
// system:discovery).
func (c *Client) ListAPIGroups(ctx context.Context) ([]string, error) {
	const action = "list API groups"
	response, err := retry(ctx, c.retryPolicy, func(ctx context.Context) ([]byte, error) {
		return c.Nodes.client.Get().AbsPath("/apis").SetHeader("Accept", "application/json").Do(ctx).Raw()
	})
	if err != nil {
		return nil, translate(action, err)
	}
	var list metav1.APIGroupList
	if err := json.Unmarshal(response, &list); err != nil {
		return nil, &Error{Action: action, Kind: ErrNotServed, Err: err}
	}
	names := make([]string, 0, len(list.Groups))
	for _, group := range list.Groups {
		names = append(names, group.Name)
	}
	return names, nil
}

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

// Server is what an API server says of itself.
type Server struct {
	URL     string
	Version string // v1.36.3
	Minor   int    // 36; 0 when the version is of another form
	// Ahead is by how much its clock is ahead of this machine's, to a second.
	Ahead time.Duration
}

// Server asks the API server what it is. Everyone whom it knows may ask that.
func (c *Client) Server(ctx context.Context) (Server, error) {
	server := Server{URL: c.config.Host}
	client, err := rest.HTTPClientFor(c.config)
	if err != nil {
		return server, err
	}
	target, _, err := rest.DefaultServerUrlFor(c.config)
	if err != nil {
		return server, err
	}
	var asked, answered time.Time
	answer, err := retry(ctx, c.repetition, func(ctx context.Context) (*http.Response, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(target.String(), "/")+"/version", http.NoBody)
		if err != nil {
			return nil, err
		}
		asked = time.Now()
		response, err := client.Do(request)
		answered = time.Now()
		return response, err
	})
	const action = "get /version"
	if err != nil {
		return server, explained(c.config, translate(action, err))
	}
	defer answer.Body.Close()
	var said struct{ GitVersion, Minor string }
	err = json.NewDecoder(answer.Body).Decode(&said)
	switch {
	case answer.StatusCode == http.StatusUnauthorized:
		refused := &Error{Action: action, Kind: ErrUnauthorized, Err: errors.New(server.URL + " does not accept the credentials")}
		return server, explained(c.config, refused)
	case answer.StatusCode != http.StatusOK || err != nil || said.GitVersion == "":
		said := fmt.Errorf("%s answers %s, and not with a version", server.URL, answer.Status)
		return server, &Error{Action: action, Kind: ErrNotServed, Err: said}
	}
	server.Version = said.GitVersion
	server.Minor, _ = strconv.Atoi(strings.TrimSuffix(said.Minor, "+"))
	if date, err := http.ParseTime(answer.Header.Get("Date")); err == nil {
		// The header leaves out parts of a second, and may have been written at any time in between.
		halfway := asked.Add(answered.Sub(asked) / 2)
		server.Ahead = date.Add(time.Second / 2).Sub(halfway).Round(time.Second)
	}
	return server, nil
}

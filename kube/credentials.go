package kube

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"k8s.io/client-go/rest"
)

// Credentials are what a client proves with who it is.
type Credentials struct {
	What string    // "client certificate", "token" and so on
	Ends time.Time // the zero time: not known, or never
	// Renewed: something else replaces them before they end, as a kubelet does a Pod's token, or a program.
	Renewed bool
}

// noCredentials is what a user without any has.
const noCredentials = "none"

// Ended reports whether the credentials are known to have ended by then.
func (c Credentials) Ended(by time.Time) bool { return !c.Ends.IsZero() && !by.Before(c.Ends) }

// Credentials returns what the configured kubeconfig, or service account, has.
func (c *Client) Credentials() (Credentials, error) { return credentialsOf(c.config) }

// credentialsOf are those of a connection's settings, in the order in which client-go prefers them.
func credentialsOf(config *rest.Config) (Credentials, error) {
	switch {
	case config.BearerTokenFile != "":
		raw, err := os.ReadFile(config.BearerTokenFile)
		return Credentials{What: "token of the file " + config.BearerTokenFile, Ends: tokenEnds(string(raw)), Renewed: true}, err
	case config.BearerToken != "":
		return Credentials{What: "token", Ends: tokenEnds(config.BearerToken)}, nil
	case config.ExecProvider != nil:
		return Credentials{What: "what the program " + config.ExecProvider.Command + " gives", Renewed: true}, nil
	case config.AuthProvider != nil:
		return Credentials{What: "what the auth-provider " + config.AuthProvider.Name + " gives", Renewed: true}, nil
	case len(config.CertData) > 0 || config.CertFile != "":
		return certificate(config.CertData, config.CertFile)
	case config.Username != "":
		return Credentials{What: "name and password"}, nil
	}
	return Credentials{What: noCredentials}, nil
}

func certificate(content []byte, file string) (Credentials, error) {
	its := Credentials{What: "client certificate"}
	if len(content) == 0 {
		var err error
		if content, err = os.ReadFile(file); err != nil {
			return its, err
		}
	}
	block, _ := pem.Decode(content)
	if block == nil {
		return its, errors.New("the client certificate is not PEM")
	}
	parsed, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return its, fmt.Errorf("the client certificate: %w", err)
	}
	its.Ends = parsed.NotAfter
	return its, nil
}

// tokenEnds is the claim exp of a JWT (RFC 7519); the zero time for one without, and for any other token.
func tokenEnds(token string) time.Time {
	parts := strings.Split(strings.TrimSpace(token), ".")
	if len(parts) != 3 {
		return time.Time{}
	}
	raw, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return time.Time{}
	}
	var claims struct {
		Expires float64 `json:"exp"`
	}
	if json.Unmarshal(raw, &claims) != nil || claims.Expires == 0 {
		return time.Time{}
	}
	return time.Unix(int64(claims.Expires), 0)
}

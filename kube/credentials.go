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
	Kind      string    // "client certificate", "token" and so on
	ExpiresAt time.Time // the zero time: not known, or never
	// AutoRenewed: something else replaces them before they end, as a kubelet does a Pod's token, or a program.
	AutoRenewed bool
}

// noCredentials is what a user without any has.
const noCredentials = "none"

// Expired reports whether the credentials are known to have ended by then.
func (c Credentials) Expired(by time.Time) bool {
	return !c.ExpiresAt.IsZero() && !by.Before(c.ExpiresAt)
}

// Credentials returns what the configured kubeconfig, or service account, has.
func (c *Client) Credentials() (Credentials, error) { return credentialsOf(c.config) }

// credentialsOf are those of a connection's settings, in the order in which client-go prefers them.
func credentialsOf(config *rest.Config) (Credentials, error) {
	switch {
	case config.BearerTokenFile != "":
		raw, err := os.ReadFile(config.BearerTokenFile)
		return Credentials{Kind: "token of the file " + config.BearerTokenFile, ExpiresAt: tokenExpiry(string(raw)), AutoRenewed: true}, err
	case config.BearerToken != "":
		return Credentials{Kind: "token", ExpiresAt: tokenExpiry(config.BearerToken)}, nil
	case config.ExecProvider != nil:
		return Credentials{Kind: "what the program " + config.ExecProvider.Command + " gives", AutoRenewed: true}, nil
	case config.AuthProvider != nil:
		return Credentials{Kind: "what the auth-provider " + config.AuthProvider.Name + " gives", AutoRenewed: true}, nil
	case len(config.CertData) > 0 || config.CertFile != "":
		return certificateCredentials(config.CertData, config.CertFile)
	case config.Username != "":
		return Credentials{Kind: "name and password"}, nil
	}
	return Credentials{Kind: noCredentials}, nil
}

func certificateCredentials(content []byte, file string) (Credentials, error) {
	credentials := Credentials{Kind: "client certificate"}
	if len(content) == 0 {
		var err error
		if content, err = os.ReadFile(file); err != nil {
			return credentials, err
		}
	}
	block, _ := pem.Decode(content)
	if block == nil {
		return credentials, errors.New("the client certificate is not PEM")
	}
	parsed, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return credentials, fmt.Errorf("the client certificate: %w", err)
	}
	credentials.ExpiresAt = parsed.NotAfter
	return credentials, nil
}

// tokenExpiry is the claim exp of a JWT (RFC 7519); the zero time for one without, and for any other token.
func tokenExpiry(token string) time.Time {
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

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

// Credentials are what a client authenticates with.
type Credentials struct {
	Kind      string    // "client certificate", "token" and so on
	ExpiresAt time.Time // zero if unknown, or never
	// AutoRenewed means that the kubelet or a credential plugin replaces them before they expire.
	AutoRenewed bool
}

// noCredentials is the Kind for a user of a kubeconfig without credentials.
const noCredentials = "none"

// Expired reports whether the credentials are known to expire at or before this time.
func (c Credentials) Expired(by time.Time) bool {
	return !c.ExpiresAt.IsZero() && !by.Before(c.ExpiresAt)
}

// Credentials returns the credentials of the configured kubeconfig or service account. It reads their files, and fails if one of
// them cannot be read or parsed.
func (c *Client) Credentials() (Credentials, error) { return credentialsOf(c.config) }

// credentialsOf returns the credentials in connection settings, in the order in which client-go prefers them.
func credentialsOf(config *rest.Config) (Credentials, error) {
	switch {
	case config.BearerTokenFile != "":
		raw, err := os.ReadFile(config.BearerTokenFile)
		return Credentials{Kind: "token file " + config.BearerTokenFile, ExpiresAt: tokenExpiry(string(raw)), AutoRenewed: true}, err
	case config.BearerToken != "":
		return Credentials{Kind: "token", ExpiresAt: tokenExpiry(config.BearerToken)}, nil
	case config.ExecProvider != nil:
		return Credentials{Kind: "credentials of credential plugin " + config.ExecProvider.Command, AutoRenewed: true}, nil
	case config.AuthProvider != nil:
		return Credentials{Kind: "credentials of auth provider " + config.AuthProvider.Name, AutoRenewed: true}, nil
	case len(config.CertData) > 0 || config.CertFile != "":
		return certificateCredentials(config.CertData, config.CertFile)
	case config.Username != "":
		return Credentials{Kind: "username and password"}, nil
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
		return credentials, errors.New("the client certificate is not valid PEM")
	}
	parsed, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return credentials, fmt.Errorf("client certificate: %w", err)
	}
	credentials.ExpiresAt = parsed.NotAfter
	return credentials, nil
}

// tokenExpiry returns the time of a JWT's exp claim (RFC 7519, section 4.1.4); zero for a JWT without it and for any other token.
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

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

// Credentials describes how a client authenticates, and until when.
type Credentials struct {
	Kind      string    // such as "client certificate" or "token"
	ExpiresAt time.Time // zero if unknown or never
	// AutoRenewed means that the kubelet or a credential plugin renews the credentials before they expire.
	AutoRenewed bool
}

// Kinds of a kubeconfig's user without credentials, and with those of older versions of Kubernetes.
const (
	noCredentials       = "none"
	usernameAndPassword = "username and password"
)

// Expired reports whether the credentials are known to expire at or before t.
func (c Credentials) Expired(t time.Time) bool {
	return !c.ExpiresAt.IsZero() && !t.Before(c.ExpiresAt)
}

// Credentials returns the credentials of the kubeconfig or service account. It fails if it cannot read or parse a credential file.
func (c *Client) Credentials() (Credentials, error) { return credentialsOf(c.config) }

// credentialsOf returns the credentials that client-go uses with config: it has the same order of precedence.
func credentialsOf(config *rest.Config) (Credentials, error) {
	switch {
	case config.BearerTokenFile != "":
		raw, err := os.ReadFile(config.BearerTokenFile)
		return Credentials{Kind: "token file " + config.BearerTokenFile, ExpiresAt: tokenExpiry(string(raw)), AutoRenewed: true}, err
	case config.BearerToken != "":
		return Credentials{Kind: "token", ExpiresAt: tokenExpiry(config.BearerToken)}, nil
	case config.ExecProvider != nil:
		return Credentials{Kind: "credentials from credential plugin " + config.ExecProvider.Command, AutoRenewed: true}, nil
	case config.AuthProvider != nil:
		return Credentials{Kind: "credentials from auth provider " + config.AuthProvider.Name, AutoRenewed: true}, nil
	case len(config.CertData) > 0 || config.CertFile != "":
		return certificateCredentials(config.CertData, config.CertFile)
	case config.Username != "":
		return Credentials{Kind: usernameAndPassword}, nil
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

// tokenExpiry returns the time of a JWT's exp claim (RFC 7519, section 4.1.4). It returns zero if the token is not a JWT, or has
// no such claim.
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

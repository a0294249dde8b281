package install

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// The token of a Pod ends a minute after the Pod does, and nobody else renews it: with it on the node, an upgrade whose
// image cannot be pulled would keep machines from starting. So the node gets the token of another service account,
// TokenFor, which is bound to no Pod. The installer's own may do nothing but request that.

// life is how long the node's token is asked to last. The API server may give a shorter one.
const life = 24 * time.Hour

// requestTimeout bounds the one request for a token.
const requestTimeout = 10 * time.Second

// claims are what a token says of itself (RFC 7519, section 4.1).
type claims struct {
	Issued  int64 `json:"iat"` // seconds since 1970
	Expires int64 `json:"exp"`
}

// left returns how much of the token's life is left, as a part of all of it: 0 of one that is over or unreadable.
func left(token string, now time.Time) float64 {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return 0
	}
	raw, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return 0
	}
	var said claims
	if json.Unmarshal(raw, &said) != nil || said.Expires <= said.Issued {
		return 0
	}
	return max(0, float64(said.Expires-now.Unix())/float64(said.Expires-said.Issued))
}

// token returns the node's token: the one that it has, while more than this part of its life is left, or a new one.
func (o Options) token(ctx context.Context, enough float64) (string, error) {
	if o.TokenFor == "" {
		return o.ownToken()
	}
	if has := o.installedToken(); left(has, time.Now()) > enough {
		return has, nil
	}
	return o.requestToken(ctx)
}

// ownToken is that of the Pod that the installer runs in.
func (o Options) ownToken() (string, error) {
	token, err := os.ReadFile(filepath.Join(o.ServiceAccount, "token"))
	if err != nil {
		return "", fmt.Errorf("read the service account's token: %w", err)
	}
	return strings.TrimSpace(string(token)), nil
}

// installedToken is the one in the node's kubeconfig; empty when there is none.
func (o Options) installedToken() string {
	var has struct {
		Users []struct {
			User struct {
				Token string `json:"token"`
			} `json:"user"`
		} `json:"users"`
	}
	raw, err := os.ReadFile(o.kubeconfig())
	if err != nil || json.Unmarshal(raw, &has) != nil || len(has.Users) == 0 {
		return ""
	}
	return has.Users[0].User.Token
}

// requestToken asks the API server for a token of TokenFor that is bound to that account alone
// (https://kubernetes.io/docs/reference/kubernetes-api/authentication-resources/token-request-v1/).
func (o Options) requestToken(ctx context.Context) (string, error) {
	own, err := o.ownToken()
	if err != nil {
		return "", err
	}
	authority, err := o.authority()
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	token, err := o.post(ctx, own, authority)
	if err != nil {
		return "", fmt.Errorf("request a token of service account %s (the installer's own needs the right to create its token): %w",
			o.TokenFor, err)
	}
	return token, nil
}

func (o Options) post(ctx context.Context, own string, authority []byte) (string, error) {
	namespace, name, _ := strings.Cut(o.TokenFor, "/")
	url := strings.TrimSuffix(o.Server, "/") + "/api/v1/namespaces/" + namespace + "/serviceaccounts/" + name + "/token"
	body := fmt.Sprintf(`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{"expirationSeconds":%d}}`, int(life.Seconds()))
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	request.Header.Set("Authorization", "Bearer "+own)
	request.Header.Set("Content-Type", "application/json")
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(authority)
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS12}, Proxy: http.ProxyFromEnvironment,
	}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusCreated {
		var refusal struct {
			Message string `json:"message"`
		}
		_ = json.NewDecoder(response.Body).Decode(&refusal)
		return "", errors.New(response.Status + ": " + refusal.Message)
	}
	var answer struct {
		Status struct {
			Token string `json:"token"`
		} `json:"status"`
	}
	err = json.NewDecoder(response.Body).Decode(&answer)
	return answer.Status.Token, err
}

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

// The token of a Pod expires a minute after the Pod is deleted. If nodes used the token of the installer's Pod, an upgrade to an image
// that cannot be pulled would prevent VMs from starting. Nodes therefore use a token for a second service account (Options.TokenFor)
// that is not bound to a Pod. The installer's own service account only has permission to request that token.

// tokenLifetime is the requested lifetime of the node's token. The API server may issue a token with a shorter lifetime.
const tokenLifetime = 24 * time.Hour

// requestTimeout bounds the request for a token.
const requestTimeout = 10 * time.Second

// tokenClaims are claims of a JSON Web Token (RFC 7519, section 4.1).
type tokenClaims struct {
	Issued  int64 `json:"iat"` // seconds since the epoch, like Expires
	Expires int64 `json:"exp"`
}

// remainingLifetime returns the remaining fraction of the token's lifetime. It returns 0 if the token is expired or cannot be parsed.
func remainingLifetime(token string, now time.Time) float64 {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return 0
	}
	raw, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return 0
	}
	var claims tokenClaims
	if json.Unmarshal(raw, &claims) != nil || claims.Expires <= claims.Issued {
		return 0
	}
	return max(0, float64(claims.Expires-now.Unix())/float64(claims.Expires-claims.Issued))
}

// nodeToken returns the installed token if more than the fraction minRemaining of its lifetime remains, or else a new token.
func (o Options) nodeToken(ctx context.Context, minRemaining float64) (string, error) {
	if o.TokenFor == "" {
		return o.installerToken()
	}
	if installed := o.installedToken(); remainingLifetime(installed, time.Now()) > minRemaining {
		return installed, nil
	}
	return o.requestToken(ctx)
}

// installerToken reads the token of the installer's Pod.
func (o Options) installerToken() (string, error) {
	token, err := os.ReadFile(filepath.Join(o.ServiceAccount, "token"))
	if err != nil {
		return "", fmt.Errorf("read the service account's token: %w", err)
	}
	return strings.TrimSpace(string(token)), nil
}

// installedToken returns the token in the node's kubeconfig, or "" if there is none.
func (o Options) installedToken() string {
	var kubeconfig struct {
		Users []struct {
			User struct {
				Token string `json:"token"`
			} `json:"user"`
		} `json:"users"`
	}
	raw, err := os.ReadFile(o.kubeconfigPath())
	if err != nil || json.Unmarshal(raw, &kubeconfig) != nil || len(kubeconfig.Users) == 0 {
		return ""
	}
	return kubeconfig.Users[0].User.Token
}

// requestToken requests a token of TokenFor that is not bound to a Pod
// (https://kubernetes.io/docs/reference/kubernetes-api/authentication-resources/token-request-v1/).
func (o Options) requestToken(ctx context.Context) (string, error) {
	bearer, err := o.installerToken()
	if err != nil {
		return "", err
	}
	caData, err := o.readCA()
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	token, err := o.postTokenRequest(ctx, bearer, caData)
	if err != nil {
		return "", fmt.Errorf("request a token for service account %s: %w; "+
			"the installer's own service account requires permission to create serviceaccounts/token", o.TokenFor, err)
	}
	return token, nil
}

func (o Options) postTokenRequest(ctx context.Context, bearer string, caData []byte) (string, error) {
	namespace, name, _ := strings.Cut(o.TokenFor, "/")
	url := strings.TrimSuffix(o.Server, "/") + "/api/v1/namespaces/" + namespace + "/serviceaccounts/" + name + "/token"
	body := fmt.Sprintf(`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{"expirationSeconds":%d}}`,
		int(tokenLifetime.Seconds()))
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	request.Header.Set("Authorization", "Bearer "+bearer)
	request.Header.Set("Content-Type", "application/json")
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(caData)
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
		var status struct {
			Message string `json:"message"`
		}
		_ = json.NewDecoder(response.Body).Decode(&status)
		return "", errors.New(response.Status + ": " + status.Message)
	}
	var tokenRequest struct {
		Status struct {
			Token string `json:"token"`
		} `json:"status"`
	}
	err = json.NewDecoder(response.Body).Decode(&tokenRequest)
	return tokenRequest.Status.Token, err
}

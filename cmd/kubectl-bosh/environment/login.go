package environment

import (
	"fmt"
	"path/filepath"
)

// Login is how the BOSH CLI logs in to a director.
type Login struct {
	Address string
	CACert  string // PEM
	Secret  string // of the client admin
}

// loginClient is the user that bosh.yml creates.
const loginClient = "admin"

// Login returns the login of the director in the directory. It fails if create-env did not create a director yet.
func (d Dir) Login() (Login, error) {
	vars, err := d.ReadVars()
	if err != nil {
		return Login{}, err
	}
	var secrets struct {
		Password string `json:"admin_password"`
		TLS      struct {
			CA string `json:"ca"`
		} `json:"director_ssl"`
	}
	for _, name := range []string{varsStoreFile, varsFile} { // the BOSH CLI prefers variables to those that it generated
		if _, err := d.readYAML(name, &secrets); err != nil {
			return Login{}, err
		}
	}
	directorUUID, err := d.DirectorUUID()
	if err != nil {
		return Login{}, err
	}
	login := Login{Address: vars.GetString("internal_ip"), CACert: secrets.TLS.CA, Secret: secrets.Password}
	if directorUUID == "" {
		return Login{}, fmt.Errorf("directory %s has no director yet: create it with `kubectl bosh up`, or select another directory with --dir",
			d.Path)
	}
	for _, required := range []Variable{{"internal_ip", login.Address}, {"director_ssl", login.CACert}, {"admin_password", login.Secret}} {
		if required.Value == "" {
			return Login{}, fmt.Errorf("variable %s has no value in %s and %s: it is not known how to log in; set it in the former",
				required.Name, d.filePath(varsFile), d.filePath(varsStoreFile))
		}
	}
	return login, nil
}

// Variables returns the variables with which the BOSH CLI logs in.
func (l Login) Variables() []Variable {
	return []Variable{
		{"BOSH_ENVIRONMENT", l.Address}, {"BOSH_CA_CERT", l.CACert}, {"BOSH_CLIENT", loginClient}, {"BOSH_CLIENT_SECRET", l.Secret},
	}
}

// Variable is a variable of a process.
type Variable struct{ Name, Value string }

// Assignments returns the variables as NAME=VALUE.
func Assignments(variables []Variable) (assignments []string) {
	for _, variable := range variables {
		assignments = append(assignments, variable.Name+"="+variable.Value)
	}
	return assignments
}

// Proxy is the proxy that `kubectl bosh env` started.
type Proxy struct {
	Host string `json:"host"` // on which the process runs
	PID  int    `json:"pid"`
	URL  string `json:"url"`
	// Connection is a checksum of the settings with which it connects to the API server.
	Connection string `json:"connection"`
}

// ProxyLogPath returns the path of the proxy's log.
func (d Dir) ProxyLogPath() string { return d.filePath("proxy.log") }

// ProxyLockPath returns the path of the lock that the proxy holds while it runs.
func (d Dir) ProxyLockPath() string { return d.filePath("proxy.lock") }

// ReadProxy returns the recorded proxy, which may have ended.
func (d Dir) ReadProxy() (proxy Proxy, err error) {
	_, err = d.readYAML(proxyFile, &proxy)
	return proxy, err
}

// WriteProxy records the proxy.
func (d Dir) WriteProxy(proxy Proxy) error {
	return d.writeYAML(proxyFile, "The proxy in the background. `kubectl bosh env --stop` stops it.", proxy)
}

// Absolute returns the directory with an absolute path.
func (d Dir) Absolute() (Dir, error) {
	path, err := filepath.Abs(d.Path)
	return Dir{Path: path}, err
}

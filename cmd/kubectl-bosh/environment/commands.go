package environment

import (
	"path/filepath"
	"regexp"
	"strings"
)

// BOSHCommand returns the command that runs create-env or delete-env with the files in the directory.
func (d Dir) BOSHCommand(program, verb string, settings Settings) []string {
	arguments := append(d.manifestCommand(program, verb, settings), "--state", d.filePath(stateFile),
		"--vars-store", d.filePath(varsStoreFile), "--var-file", "kubeconfig="+d.filePath(kubeconfigFile))
	if settings.Credentials == CredentialsKubeconfig {
		arguments = append(arguments, "--var-file", "director_kubeconfig="+d.filePath(directorKubeconfigFile))
	}
	return arguments
}

// InterpolateCommand returns the command that prints the manifest with its ops files applied.
func (d Dir) InterpolateCommand(program string, settings Settings) []string {
	return append(d.manifestCommand(program, "interpolate", settings), "--non-interactive")
}

func (d Dir) manifestCommand(program, verb string, settings Settings) []string {
	arguments := []string{program, verb, settings.Manifest}
	for _, opsFile := range settings.OpsFiles {
		if !filepath.IsAbs(opsFile) {
			opsFile = d.filePath(opsFile)
		}
		arguments = append(arguments, "--ops-file", opsFile)
	}
	return append(arguments, "--vars-file", d.filePath(varsFile))
}

// ManualCommands returns the shell commands equivalent to `kubectl bosh up`, using the files in the directory.
func (d Dir) ManualCommands(program string, plan *Plan) []string {
	namespaceFlags := " --namespace " + plan.Namespace + plan.kubectlFlags()
	commands := []string{"kubectl apply -f " + quoteWord(d.filePath(permissionsFile)) + plan.kubectlFlags()}
	if plan.LabelCommand != "" {
		commands = append(commands, plan.LabelCommand+plan.kubectlFlags())
	}
	commands = append(commands, "kubectl create token "+Account+namespaceFlags+" --duration 24h >"+quoteWord(d.filePath(tokenFile)))
	if plan.Credentials == CredentialsKubeconfig {
		commands = append(commands, "kubectl config --kubeconfig "+quoteWord(d.filePath(directorKubeconfigFile))+" set-credentials "+Account+
			" --token \"$(kubectl get secret "+TokenSecret+namespaceFlags+" -o 'jsonpath={.data.token}' | base64 --decode)\"")
	}
	return append(commands, "kubectl bosh proxy --direct"+namespaceFlags+" -- \\\n    "+
		strings.Join(splitAtFlags(d.BOSHCommand(program, "create-env", plan.Settings)), " \\\n      "))
}

// kubectlFlags returns the flags that select the cluster, with a leading space, or "" if there are none.
func (p *Plan) kubectlFlags() string {
	if len(p.options.KubectlFlags) == 0 {
		return ""
	}
	return " " + QuoteCommand(p.options.KubectlFlags)
}

// NextSteps returns the commands to log in to the director and to set its cloud config.
func (d Dir) NextSteps(plan *Plan) []string {
	config := []string{"bosh", "-e", plan.Director, "update-cloud-config", d.filePath(cloudConfigFile),
		"--vars-file", d.filePath(cloudConfigVarsFile)}
	if plan.Network == NetworkService {
		config = append(config, "--ops-file", d.filePath(opsDir+"/"+dynamicNetworkFile))
	}
	varsStore, address := quoteWord(d.filePath(varsStoreFile)), plan.Vars.GetString("internal_ip")
	return []string{
		"kubectl bosh proxy --namespace " + plan.Namespace + plan.kubectlFlags() + " --port 1080" +
			" # in another terminal, if there is no network route to " + address,
		"export BOSH_ALL_PROXY=socks5://127.0.0.1:1080",
		"bosh alias-env " + plan.Director + " -e " + address + " --ca-cert <(bosh interpolate " + varsStore + " --path /director_ssl/ca)",
		"export BOSH_CLIENT=admin BOSH_CLIENT_SECRET=$(bosh interpolate " + varsStore + " --path /admin_password)",
		QuoteCommand(config),
	}
}

// splitAtFlags returns the parts of the command that begin with a flag, quoted for a POSIX shell.
func splitAtFlags(command []string) []string {
	var parts []string
	for i, word := range command {
		if i == 0 || strings.HasPrefix(word, "--") {
			parts = append(parts, quoteWord(word))
		} else {
			parts[len(parts)-1] += " " + quoteWord(word)
		}
	}
	return parts
}

var shellSafe = regexp.MustCompile(`^[\w@%+=:,./-]+$`)

// QuoteCommand returns the command, quoted for a POSIX shell.
func QuoteCommand(command []string) string {
	var words []string
	for _, word := range command {
		words = append(words, quoteWord(word))
	}
	return strings.Join(words, " ")
}

func quoteWord(word string) string {
	if shellSafe.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

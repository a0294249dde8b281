package environment

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
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
	arguments := []string{program, verb, d.resolve(settings.Manifest)}
	for _, opsFile := range settings.OpsFiles {
		arguments = append(arguments, "--ops-file", d.resolve(opsFile))
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
	commands = append(commands, d.restrictCommands(plan)...)
	commands = append(commands, "kubectl create token "+Account+namespaceFlags+" --duration 24h >"+quoteWord(d.filePath(tokenFile)))
	if plan.Credentials == CredentialsKubeconfig {
		commands = append(commands, "kubectl config --kubeconfig "+quoteWord(d.filePath(directorKubeconfigFile))+" set-credentials "+Account+
			" --token \"$(kubectl get secret "+TokenSecret+namespaceFlags+" -o 'jsonpath={.data.token}' | base64 --decode)\"")
	}
	createEnv := append(d.BOSHCommand(program, "create-env", plan.Settings), plan.CreateEnvFlags()...)
	return append(commands, "kubectl bosh proxy --direct"+namespaceFlags+" -- \\\n    "+
		strings.Join(splitAtFlags(createEnv), " \\\n      "))
}

// kubectlFlags returns the flags that select the cluster, with a leading space, or "" if there are none.
func (p *Plan) kubectlFlags() string {
	if len(p.options.KubectlFlags) == 0 {
		return ""
	}
	return " " + QuoteCommand(p.options.KubectlFlags)
}

// NextSteps returns the commands to log in to the director.
func (d Dir) NextSteps(plan *Plan, noProxy bool) []string {
	login := "kubectl bosh env --dir " + quoteWord(d.Path) + plan.kubectlFlags()
	if noProxy {
		login += " --no-proxy"
	}
	return []string{`eval "$(` + login + `)"`, "bosh env"}
}

// DirectorStep is a command of the BOSH CLI that configures a new director.
type DirectorStep struct {
	Name    string
	Query   []string // prints a JSON table with rows if the step is done; none if the command itself finds that out
	Command []string
}

// DirectorSteps returns the steps that configure a new director. Without the address of the cluster's DNS, they upload no configs. The
// runtime config is the last, because the director downloads its release.
func (d Dir) DirectorSteps(program string, plan *Plan) []DirectorStep {
	cloudConfig := []string{program, "update-cloud-config", d.filePath(cloudConfigFile), "--vars-file", d.filePath(cloudConfigVarsFile)}
	if plan.Network == NetworkService {
		cloudConfig = append(cloudConfig, "--ops-file", d.filePath(opsDir+"/"+dynamicNetworkFile))
	}
	steps := []DirectorStep{{"stemcell", nil, d.stemcellCommand(program, plan)}}
	if !d.HasClusterDNS() {
		return steps
	}
	steps = append(steps, DirectorStep{"cloud config", []string{program, "configs", "--type", "cloud", "--json"}, cloudConfig})
	dns := filepath.Join(filepath.Dir(d.resolve(plan.Manifest)), "runtime-configs", "dns.yml")
	if isFile(dns) && isFile(d.filePath(opsDir+"/"+dnsOpsFile)) {
		command := []string{program, "update-runtime-config", "--name", "dns", dns, "--ops-file", d.filePath(opsDir + "/" + dnsOpsFile),
			"--vars-file", d.filePath(cloudConfigVarsFile), "--var", "cluster_domain=cluster.local"}
		if !plan.hasCredHub() { // the director cannot generate the certificates of BOSH DNS
			command = append(command, "--vars-store", d.filePath(varsStoreFile))
		}
		steps = append(steps, DirectorStep{
			"runtime config of BOSH DNS", []string{program, "configs", "--type", "runtime", "--name", "dns", "--json"}, command,
		})
	}
	return steps
}

// CreateEnvFlags returns additional flags of create-env. Without --recreate, it skips a manifest without changes, even if the VM is lost.
func (p *Plan) CreateEnvFlags() []string {
	if p.exists && p.options.LostVM != "" {
		return []string{"--recreate"}
	}
	return nil
}

// hasCredHub reports whether credhub.yml of bosh-deployment is applied.
func (p *Plan) hasCredHub() bool {
	return slices.ContainsFunc(p.OpsFiles, func(path string) bool { return filepath.Base(path) == "credhub.yml" })
}

func (Dir) stemcellCommand(program string, plan *Plan) []string {
	command := []string{program, "upload-stemcell", strings.TrimPrefix(plan.Vars.GetString("stemcell_url"), "file://")}
	if checksum := plan.Vars.GetString("stemcell_sha1"); checksum != "" && isURL(plan.Vars.GetString("stemcell_url")) {
		command = append(command, "--sha1", checksum)
	}
	return command
}

// HasClusterDNS reports whether the address of the cluster's DNS, which the configs contain, is known.
func (d Dir) HasClusterDNS() bool {
	vars := Vars{}
	_, err := d.readYAML(cloudConfigVarsFile, &vars)
	return err == nil && vars.GetString("cluster_dns") != ""
}

// CloudConfigVarsPath returns the path of the variables of the cloud config.
func (d Dir) CloudConfigVarsPath() string { return d.filePath(cloudConfigVarsFile) }

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
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

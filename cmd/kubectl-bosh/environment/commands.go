package environment

import (
	"path/filepath"
	"regexp"
	"strings"
)

// Bosh are the arguments of create-env or delete-env.
func (f Folder) Bosh(program, verb string, settings Settings) []string {
	arguments := []string{program, verb, settings.Manifest}
	for _, each := range settings.OpsFiles {
		if !filepath.IsAbs(each) {
			each = f.in(each)
		}
		arguments = append(arguments, "--ops-file", each)
	}
	arguments = append(arguments, "--state", f.in(stateFile), "--vars-store", f.in(credentialsFile), "--vars-file", f.in(varsFile),
		"--var-file", "kubeconfig="+f.in(kubeconfigFile))
	if settings.Credentials == Kubeconfig {
		arguments = append(arguments, "--var-file", "director_kubeconfig="+f.in(directorsFile))
	}
	return arguments
}

// ByHand are the commands that do what `kubectl bosh up` does, with the folder's files.
func (f Folder) ByHand(program string, plan *Plan) []string {
	in := " --namespace " + plan.Namespace + plan.reach()
	commands := []string{"kubectl apply -f " + quoted(f.in(rightsFile)) + plan.reach()}
	if plan.NamespaceLabel != "" {
		commands = append(commands, plan.NamespaceLabel+plan.reach())
	}
	commands = append(commands, "kubectl create token "+Account+in+" --duration 24h >"+quoted(f.in(tokenFile)))
	if plan.Credentials == Kubeconfig {
		commands = append(commands, "kubectl config --kubeconfig "+quoted(f.in(directorsFile))+" set-credentials "+Account+
			" --token \"$(kubectl get secret "+TokenSecret+in+" -o 'jsonpath={.data.token}' | base64 --decode)\"")
	}
	return append(commands, "kubectl bosh proxy --direct"+in+" -- \\\n    "+Quote(f.Bosh(program, "create-env", plan.Settings)))
}

// reach are the flags that lead a command to the cluster, after a space.
func (p *Plan) reach() string {
	if len(p.options.Reach) == 0 {
		return ""
	}
	return " " + Quote(p.options.Reach)
}

// Afterwards are the commands by which an operator goes on.
func (f Folder) Afterwards(plan *Plan) []string {
	config := []string{"bosh", "-e", plan.Director, "update-cloud-config", f.in(cloudConfigFile), "--vars-file", f.in(cloudConfigVarsFile)}
	if plan.Network == Service {
		config = append(config, "--ops-file", f.in(opsFolder+"/"+dynamicNetwork))
	}
	store, address := quoted(f.in(credentialsFile)), plan.Vars.Text("internal_ip")
	return []string{
		"kubectl bosh proxy --namespace " + plan.Namespace + plan.reach() + " --port 1080" +
			" # in another terminal, where there is no route to " + address,
		"export BOSH_ALL_PROXY=socks5://127.0.0.1:1080",
		"bosh alias-env " + plan.Director + " -e " + address + " --ca-cert <(bosh interpolate " + store + " --path /director_ssl/ca)",
		"export BOSH_CLIENT=admin BOSH_CLIENT_SECRET=$(bosh interpolate " + store + " --path /admin_password)",
		Quote(config),
	}
}

var plain = regexp.MustCompile(`^[\w@%+=:,./-]+$`)

// Quote is the command as a shell takes it.
func Quote(command []string) string {
	var words []string
	for _, word := range command {
		words = append(words, quoted(word))
	}
	return strings.Join(words, " ")
}

func quoted(word string) string {
	if plain.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

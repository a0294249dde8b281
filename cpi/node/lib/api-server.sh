# The URL of the API server, for programs in a VM with a service account token.

# save_api_server_url writes the URL to a file for kube/options.go. A director starts the CPI without the Pod's environment variables, and
# the VM's name servers may not know the cluster's names. The file is in /etc, which BPM mounts into its containers.
save_api_server_url() {
  local directory=$root/etc/bosh-kubernetes-cpi host=${KUBERNETES_SERVICE_HOST:-} port=${KUBERNETES_SERVICE_PORT:-}
  if [[ ! -e $root/var/run/secrets/kubernetes.io/serviceaccount/token || -z $host || -z $port ]]; then
    rm -rf "$directory"
    return
  fi
  [[ $host != *:* ]] || host=[$host]
  echo "https://$host:$port" | update_file "$directory/api-server" 0644
}

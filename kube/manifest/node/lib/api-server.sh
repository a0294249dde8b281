# Where the API server is, for programs of a machine that has a service account's token.

# keep_api_server: a director starts the CPI without any of the variables by which a Pod's programs are told, and its name
# servers may know nothing of the cluster's names. So this process, which is told, writes it down for kube/options.go. It
# is in /etc, which BPM shows in its containers, too.
keep_api_server() {
  local folder=$root/etc/bosh-kubernetes-cpi host=${KUBERNETES_SERVICE_HOST:-} port=${KUBERNETES_SERVICE_PORT:-}
  if [[ ! -e $root/var/run/secrets/kubernetes.io/serviceaccount/token || -z $host || -z $port ]]; then
    rm -rf "$folder"
    return
  fi
  [[ $host != *:* ]] || host=[$host]
  echo "https://$host:$port" | update "$folder/api-server" 0644
}

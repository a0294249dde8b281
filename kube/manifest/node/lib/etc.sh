# The files in /etc that the kubelet mounts into every container.

# release_etc: the agent must be able to write them. What the kubelet put there stays until the agent has
# something better.
release_etc() {
  local file content
  for file in "$root"/etc/{resolv.conf,hosts,hostname}; do
    content=$(cat "$file" 2>/dev/null) || continue
    umount "$file" 2>/dev/null || continue
    printf '%s\n' "$content" >"$file" || say "cannot write $file"
  done
}

# keep_name_servers: with resolvconf the agent makes resolv.conf anew of its networks' name servers. Where
# they name none, the machine keeps those of its Pod; prepare_systemd does the same for systemd. On a machine
# /run is empty at boot; in an image it may hold the name servers of the place where the stemcell was built.
keep_name_servers() {
  local tail=$root/etc/resolvconf/resolv.conf.d/tail
  [[ -d ${tail%/*} ]] || return 0
  rm -f "$root"/run/resolvconf/interface/* "$tail"
  [[ -s $given/name-servers ]] || cp "$root/etc/resolv.conf" "$tail"
}

# Files in /etc that the kubelet mounts into every container.

# unmount_etc_files replaces these mounts by writable files with the same content.
unmount_etc_files() {
  local file content
  for file in "$root"/etc/{resolv.conf,hosts,hostname}; do
    content=$(cat "$file" 2>/dev/null) || exit_if_killed $? || continue
    umount "$file" 2>/dev/null || exit_if_killed $? || continue
    printf '%s\n' "$content" >"$file" || log "cannot write $file"
  done
}

# save_name_servers keeps the Pod's name servers if the VM's networks have none. With resolvconf, the agent rewrites resolv.conf with the
# name servers of the networks. prepare_systemd does the same for systemd. The image's /run may contain the name servers of the host on
# which the stemcell was built; on other VMs, /run is empty at boot.
save_name_servers() {
  local tail=$root/etc/resolvconf/resolv.conf.d/tail
  [[ -d ${tail%/*} ]] || return 0
  rm -f "$root"/run/resolvconf/interface/* "$tail"
  [[ -s $settings/name-servers ]] || cp "$root/etc/resolv.conf" "$tail"
}

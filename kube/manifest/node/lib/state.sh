# What a machine keeps when its container restarts: it lies on the Pod's volume.

# bring_vcap: the volume is seeded from the image once. The copy is renamed into place, so that a start that
# was cut short is begun again.
bring_vcap() {
  if [[ ! -d $volume/vcap ]]; then
    say "first start: copying /var/vcap from the stemcell"
    rm -rf "$volume/vcap.new"
    cp -a "$root/var/vcap" "$volume/vcap.new"
    mv -T "$volume/vcap.new" "$volume/vcap"
  fi
  mount --bind "$volume/vcap" "$root/var/vcap"
  # On a machine this is a tmpfs that the agent makes on every boot. What is left of the last one would
  # let a monit that waits for it start too early, and believe in processes that are gone.
  rm -rf "$root/var/vcap/data/sys/run"
}

# bring_certificates: those that the director wants trusted. The agent writes them when it is told to, and
# not again at a boot.
bring_certificates() {
  local trusted=$root/usr/local/share/ca-certificates
  command -v update-ca-certificates >/dev/null || return 0
  mkdir -p "$trusted"
  if [[ -d $volume/ca-certificates ]]; then
    mount --bind "$volume/ca-certificates" "$trusted"
    update-ca-certificates >/dev/null 2>&1 || say "cannot renew the trusted certificates"
    return 0
  fi
  rm -rf "$volume/ca-certificates.new"
  cp -a "$trusted" "$volume/ca-certificates.new"
  mv -T "$volume/ca-certificates.new" "$volume/ca-certificates"
  mount --bind "$volume/ca-certificates" "$trusted"
}

# bring_monit_state: monit keeps in root's home which jobs the director has stopped.
bring_monit_state() {
  local home=~root
  ln -sfn "$volume/monit.state" "$root$home/.monit.state"
}

# What a machine keeps when its container restarts: it lies on the Pod's volume.

# keep_changes: in these directories each file is the stemcell's, until it is changed: users, keys, what packages and jobs
# configure, their data. The programs in /usr are always the stemcell's, and /var/log the agent's to bring.
keep_changes() {
  local directory
  for directory in etc root home opt srv usr/local var/lib var/spool; do
    [[ ! -d $root/$directory ]] || lay_over "$root/$directory" "$volume/changes/$directory" || return 0
  done
}

# lay_over DIRECTORY CHANGES: the two as one directory, which is the first with what was changed in it. It fails where a
# container may not mount, or the volume's filesystem cannot hold changes: then a restart undoes them.
lay_over() {
  local new trouble
  if [[ ! -d $2/upper ]]; then
    mkdir -p "$2/work" "$2/new"
    chmod --reference="$1" "$2/new"
    chown --reference="$1" "$2/new"
    mv -T "$2/new" "$2/upper"
  fi
  new=$(mktemp -d)
  if ! trouble=$(mount -t overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work,index=off" overlay "$new" 2>&1); then
    rmdir "$new"
    say "a restart undoes what is changed outside of /var/vcap: ${trouble:-cannot mount an overlay}"
    return 1
  fi
  put_over "$new" "$1"
}

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

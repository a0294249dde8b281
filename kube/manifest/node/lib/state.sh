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
# container may not mount, or the volume's filesystem cannot hold changes: then a restart undoes them. On a full disk the changes
# of earlier starts are there, and new ones are in memory.
lay_over() {
  local new trouble
  if [[ ! -d $2/upper ]]; then
    mkdir -p "$2/work" "$2/new"
    chmod --reference="$1" "$2/new"
    chown --reference="$1" "$2/new"
    mv -T "$2/new" "$2/upper"
  fi
  new=$(mktemp -d)
  # Without space for its work folder the kernel may mount an overlay read-only, and report no error.
  if ! trouble=$(mount_overlay "$1" "$2" "$new" 2>&1) || [[ ! -w $new ]]; then
    ! mountpoint -q "$new" || umount "$new"
    if ! full || ! mount_in_memory "$2/upper:$1" "$new"; then
      rmdir "$new"
      say "a restart undoes what is changed outside of /var/vcap: ${trouble:-cannot mount an overlay}"
      return 1
    fi
    say "the ephemeral disk has no space for changes in $1: the next restart undoes those of this one"
  fi
  put_over "$new" "$1"
}

# mount_overlay LOWER CHANGES PLACE
mount_overlay() { mount -t overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work,index=off" overlay "$3"; }

# mount_in_memory LOWER PLACE: an overlay whose changes are in memory, until it is unmounted.
mount_in_memory() {
  local memory top=${1%%:*}
  memory=$(mktemp -d)
  mount -t tmpfs tmpfs "$memory" && mkdir "$memory/upper" "$memory/work" &&
    chmod --reference="$top" "$memory/upper" && chown --reference="$top" "$memory/upper" &&
    mount_overlay "$1" "$memory" "$2" && umount --lazy "$memory" && rmdir "$memory"
}

# seed NAME FOLDER: the volume gets its copy of the image's folder, once. A start that was cut short begins it again.
seed() {
  rm -rf "$volume/$1.new"
  cp -a "$2" "$volume/$1.new"
  rename_synced "$volume/$1.new" "$volume/$1"
}

bring_vcap() {
  if [[ ! -d $volume/vcap ]]; then
    say "first start: copying /var/vcap from the stemcell"
    seed vcap "$root/var/vcap"
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
  seed ca-certificates "$trusted"
  mount --bind "$volume/ca-certificates" "$trusted"
}

# bring_monit_state: monit keeps in root's home which jobs the director has stopped.
bring_monit_state() {
  local home=~root
  link "$volume/monit.state" "$root$home/.monit.state"
}

# Files of the VM that outlive its container, because they are on the ephemeral disk.

# persist_changes keeps changes in these directories, such as users, keys, configuration and data. Unchanged files are the stemcell's. The
# programs in /usr are always the stemcell's, and the agent mounts /var/log.
persist_changes() {
  local directory new
  for directory in etc root home opt srv usr/local var/lib var/spool; do
    [[ -d $root/$directory ]] || continue
    mount_changes "$root/$directory" "$ephemeral_disk/changes/$directory" || return 0
    replace_directory "$new" "$root/$directory"
  done
}

# mount_changes DIRECTORY CHANGES sets $new, a variable of the caller, to a directory, and mounts an overlay of DIRECTORY with the changes in
# CHANGES there. It fails if the container is not allowed to mount, or if the filesystem of the ephemeral disk does not support overlays; a
# restart then loses the changes. On a full disk, the changes of earlier starts are visible, and new changes are in memory.
mount_changes() {
  local error
  if [[ ! -d $2/upper ]]; then
    { mkdir -p "$2/work" "$2/new" && chmod --reference="$1" "$2/new" && chown --reference="$1" "$2/new" && mv -T "$2/new" "$2/upper"; } ||
      exit_if_killed $?
  fi
  new=$(mktemp -d) || exit $?
  # Without space for the work directory, the kernel may mount an overlay read-only without an error.
  if ! { error=$(mount_overlay "$1" "$2" "$new" 2>&1) || exit_if_killed $?; } || [[ ! -w $new ]]; then
    ! mountpoint -q "$new" || umount "$new"
    if ! disk_full || ! { mount_overlay_in_memory "$2/upper:$1" "$new" || exit_if_killed $?; }; then
      rmdir "$new"
      log "changes outside of /var/vcap are lost when the VM restarts: ${error:-cannot mount an overlay}"
      return 1
    fi
    log "the ephemeral disk has no space for changes in $1: new changes are lost when the VM restarts"
  fi
}

# mount_overlay LOWER CHANGES TARGET
mount_overlay() { mount -t overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work,index=off" overlay "$3"; }

# mount_overlay_in_memory LOWER TARGET mounts an overlay that keeps changes in memory until it is unmounted.
mount_overlay_in_memory() {
  local memory top=${1%%:*}
  memory=$(mktemp -d) || return $?
  mount -t tmpfs tmpfs "$memory" && mkdir "$memory/upper" "$memory/work" &&
    chmod --reference="$top" "$memory/upper" && chown --reference="$top" "$memory/upper" &&
    mount_overlay "$1" "$memory" "$2" && umount --lazy "$memory" && rmdir "$memory"
}

# copy_from_image NAME DIRECTORY copies a directory of the image to the ephemeral disk. An interrupted copy starts over.
copy_from_image() {
  rm -rf "$ephemeral_disk/$1.new"
  cp -a "$2" "$ephemeral_disk/$1.new"
  rename_synced "$ephemeral_disk/$1.new" "$ephemeral_disk/$1"
}

mount_vcap() {
  if [[ ! -d $ephemeral_disk/vcap ]]; then
    log "first start: copying /var/vcap from the stemcell"
    # The jobs of a new VM are stopped until the director starts them. The agent then removes this file (monit_job_supervisor.go).
    mkdir -p "$root/var/vcap/monit"
    : >"$root/var/vcap/monit/stopped"
    copy_from_image vcap "$root/var/vcap"
  fi
  mount --bind "$ephemeral_disk/vcap" "$root/var/vcap"
  # On other VMs, this is a tmpfs that the agent mounts at each boot. With files of an earlier start, monit would start too early, and
  # consider processes running that exited.
  rm -rf "$root/var/vcap/data/sys/run"
}

# mount_certificates keeps the director's trusted certificates, because the agent writes them in update_settings, and not at each boot.
mount_certificates() {
  local trusted=$root/usr/local/share/ca-certificates
  command -v update-ca-certificates >/dev/null || return 0
  mkdir -p "$trusted"
  if [[ -d $ephemeral_disk/ca-certificates ]]; then
    mount --bind "$ephemeral_disk/ca-certificates" "$trusted"
    update-ca-certificates >/dev/null 2>&1 || exit_if_killed $? || log "cannot update the trusted certificates"
    return 0
  fi
  copy_from_image ca-certificates "$trusted"
  mount --bind "$ephemeral_disk/ca-certificates" "$trusted"
}

# link_monit_state keeps monit's state file, which is in root's home directory and contains the jobs stopped by the director.
link_monit_state() {
  local home=~root
  update_link "$ephemeral_disk/monit.state" "$root$home/.monit.state"
}

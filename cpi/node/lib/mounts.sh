# Mounts in a VM's container.

# replace_directory NEW DIRECTORY moves the mount at NEW to DIRECTORY. Mounts below DIRECTORY, such as the service account token, stay
# visible.
replace_directory() {
  local mounts mount target
  mounts=$(awk -v parent="$2/" 'index($5, parent) == 1 { print $5 }' "$root/proc/self/mountinfo")
  for mount in $mounts; do
    target=$1${mount#"$2"}
    if [[ -d $mount ]]; then
      mkdir -p "$target"
    elif [[ ! -e $target ]]; then
      install -D /dev/null "$target"
    fi
    mount --bind "$mount" "$target"
  done
  mount --rbind "$1" "$2"
  umount --lazy "$1"
  rmdir "$1"
}

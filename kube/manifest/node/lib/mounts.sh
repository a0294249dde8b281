# Mounts of a container, in which there may be others: the Pod's own.

# put_over NEW DIRECTORY: what is mounted at NEW is at DIRECTORY from then on, and there alone. What is mounted below
# DIRECTORY, as a service account's token is, stays.
put_over() {
  local mount place
  while read -r mount; do
    place=$1${mount#"$2"}
    if [[ -d $mount ]]; then
      mkdir -p "$place"
    elif [[ ! -e $place ]]; then
      install -D /dev/null "$place"
    fi
    mount --bind "$mount" "$place"
  done < <(awk -v below="$2/" 'index($5, below) == 1 { print $5 }' "$root/proc/self/mountinfo")
  mount --rbind "$1" "$2"
  umount --lazy "$1"
  rmdir "$1"
}

# PID 1 of a VM's container, until it becomes the stemcell's init program.
#
# It makes the start of the container look like the boot of a VM: /var/vcap has its previous content, the agent finds its settings, and the
# persistent disk is mounted before a job can write to /var/vcap/store.
#
# $1: the path of the init program (default: see find_init)
. lib/shell.sh
. lib/signals.sh
. lib/pause.sh
. lib/device.sh
. lib/lock.sh
. lib/json.sh
. lib/files.sh
. lib/etc.sh
. lib/mounts.sh
. lib/state.sh
. lib/reserve.sh
. lib/api-server.sh
. lib/agent.sh
. lib/bind-mounts.sh
. lib/persistent-disks.sh
. lib/oom.sh
. lib/limits.sh
. lib/lxcfs.sh
. lib/cgroups.sh
. lib/init.sh

ephemeral_disk=$root/bosh/ephemeral-disk
settings=$root/bosh/settings # the Secret with the agent settings
devices=$root/dev/bosh
agent_dir=$root/var/vcap/bosh

log() { echo "vm-start: $*" >&2; }

fail() { log "$*"; exit 1; }

# The kernel delivers a signal to PID 1 only if it has a handler for the signal.
trap 'log "stopped before the init program started"; exit 1' "${stop_signals[@]}"

init=$(find_init "${1:-}")
[[ -x $init ]] || fail "the stemcell has no init program $init; set cloud_properties.init [init-not-found]"
[[ -f $agent_dir/agent.json ]] || fail "the image is not a BOSH stemcell: $agent_dir/agent.json not found [image-not-stemcell]"
agent_json=$(<"$agent_dir/agent.json") # before mount_vcap hides it

disable_group_kill
raise_limits
free_reserve
unmount_etc_files
save_name_servers
persist_changes
save_api_server_url
mount_vcap
mount_certificates
link_monit_state
configure_agent "$agent_json"
install_mount_wrappers
[[ $init != */runsvdir-start ]] || install_reboot_programs
# The VM's directory on the node may be on a filesystem that is mounted with nodev.
! disks_are_hot_plugged || mount -o remount,bind,dev,rw "$devices"
# In a volume of a Pod, any user can remove all files. The sticky bit, as on other VMs, limits that to the owner of a file.
[[ ! -d $root/dev/shm ]] || chmod 1777 "$root/dev/shm"
mkdir -p "$root/var/vcap/store"
mount_persistent_disk
wait_for_other_disks
create_reserve
start_lxcfs_mounts
exec {pause_fd}>&- # only lxcfs-mounts still needs it
start_init "$init"

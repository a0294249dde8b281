# PID 1 of a VM's container, until it becomes the stemcell's init program.
#
# It makes the start of a container look like the boot of a VM: /var/vcap has its former content, the agent finds its settings, and the
# persistent disk is mounted before a job can write to /var/vcap/store.
#
# $1: the path of the init program; without it, find_init searches for one.
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

# The kernel delivers only those signals to PID 1 for which it has a handler.
trap 'log "stopped before the init program was started"; exit 1' "${stop_signals[@]}"

init=$(find_init "${1:-}")
[[ -x $init ]] || fail "the stemcell has no init program $init; set cloud_properties.init [init-not-found]"
[[ -f $agent_dir/agent.json ]] || fail "the image is not that of a BOSH stemcell: $agent_dir/agent.json is missing [image-not-stemcell]"
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
# The node's directory may be on a filesystem that is mounted with nodev.
! disks_are_hot_plugged || mount -o remount,bind,dev,rw "$devices"
# In a volume of a Pod any user can remove all files. With the sticky bit, as on other VMs, only their owner can.
[[ ! -d $root/dev/shm ]] || chmod 1777 "$root/dev/shm"
mkdir -p "$root/var/vcap/store"
mount_persistent_disk
wait_for_other_disks
create_reserve
start_lxcfs_mounts
exec {pause_fd}>&- # lxcfs-mounts has it open, and the init program does not need it
start_init "$init"

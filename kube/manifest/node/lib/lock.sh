# held LOCK: succeeds while the attachment that made a disk's node, or directory, lives. It holds a lock on
# the file beside it: the kernel drops that when the attachment's process dies, and a node's reboot drops
# all of them.
held() { [[ -e $1 ]] && ! flock --nonblock --shared "$1" true; }

# The signals that may stop a container: the kubelet sends the one that the image specifies, SIGRTMIN+3 in images for systemd.
stop_signals=(TERM INT QUIT RTMIN+3)

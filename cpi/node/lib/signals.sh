# The signals that may stop a container. The kubelet sends the one that the image specifies, for example SIGRTMIN+3 for systemd.
stop_signals=(TERM INT QUIT RTMIN+3)

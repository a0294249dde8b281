# How a container is told to end is up to its image: where that is made for systemd, with SIGRTMIN+3.
end_signals=(TERM INT QUIT RTMIN+3)

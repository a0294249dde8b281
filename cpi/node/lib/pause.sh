# Waiting without child processes.

# Nothing is ever written to this pipe. It is opened before the first trap is set, because bash 5.2 loses a signal that arrives while it
# parses a process substitution.
exec {pause_fd}<> <(:)

# pause SECONDS waits without a child process, which could outlive this process and keep its files open, such as the lock. Pauses should be
# short: if a signal arrives just before the pause, bash handles it only after the pause.
pause() { read -r -t "$1" -u "$pause_fd" || true; }

# Waiting without child processes.

# Nothing is ever written to this pipe. It is opened once, before the first trap is set: bash 5.2 loses a signal that arrives while it
# parses a process substitution.
exec {pause_fd}<> <(:)

# pause SECONDS waits without a child process, which could outlive this process and keep its files open, such as the lock. SECONDS
# should be short: bash handles a signal that arrives just before it begins to wait only after the pause.
pause() { read -r -t "$1" -u "$pause_fd" || true; }

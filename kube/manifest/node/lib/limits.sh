# What a process of a machine may have.

# most_files is how many open files a program may ask for on a VM: systemd's default, DefaultLimitNOFILE=1024:524288.
most_files=524288

# raise_limits: a runtime's are for one program, and a machine runs many, some of which ask for more. What a process has
# unasked stays as it is.
raise_limits() {
  local files
  ulimit -Hu unlimited 2>/dev/null || true
  ulimit -Hc unlimited 2>/dev/null || true
  files=$(ulimit -Hn)
  [[ $files != unlimited ]] && ((files < most_files)) || return 0
  ulimit -Hn "$most_files" 2>/dev/null || say "a program can have $files open files and not $most_files as on a VM: the container may not raise the limit"
}

# Files and folders that a later start relies on. After a power cut a filesystem may have the new name of a file, and none of
# its content: only what was synced before the rename is there with it.

# rename_synced NEW NAME: NEW gets the name NAME, in the same folder, once all of it is on the storage.
rename_synced() {
  if [[ -d $1 ]]; then sync --file-system "$1"; else sync "$1"; fi
  mv -T "$1" "$2"
  sync "${2%/*}"
}

# update FILE MODE: the file gets what comes on standard input. A file that has it already is left alone: a full disk does not
# fail that, and it costs no sync.
update() {
  local content
  content=$(cat && echo .)
  content=${content%.}
  ! printf '%s' "$content" | cmp --silent - "$1" || return 0
  mkdir -p "${1%/*}"
  rm -f "$1.new"
  printf '%s' "$content" | install -m "$2" /dev/stdin "$1.new"
  rename_synced "$1.new" "$1"
}

# link TARGET NAME: NAME is a symbolic link to TARGET.
link() { [[ $(readlink "$2") == "$1" ]] || ln -sfn "$1" "$2"; }

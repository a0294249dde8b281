# Files and directories that a later start needs. After a power failure, a renamed file may be empty, unless its content was synced before
# the rename.

# rename_synced NEW NAME syncs NEW, a file or a directory, and renames it to NAME in the same directory.
rename_synced() {
  if [[ -d $1 ]]; then sync --file-system "$1"; else sync "$1"; fi
  mv -T "$1" "$2"
  sync "${2%/*}"
}

# update_file FILE MODE replaces the file's content by standard input. It keeps a file that already has this content: this also works on a
# full disk, and saves a sync.
update_file() {
  local content
  content=$(cat && echo .)
  content=${content%.}
  ! printf '%s' "$content" | cmp --silent - "$1" || return 0
  mkdir -p "${1%/*}"
  rm -f "$1.new"
  printf '%s' "$content" | install -m "$2" /dev/stdin "$1.new"
  rename_synced "$1.new" "$1"
}

# update_link TARGET NAME makes NAME a symbolic link to TARGET.
update_link() { [[ $(readlink "$2") == "$1" ]] || ln -sfn "$1" "$2"; }

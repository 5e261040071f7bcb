# Hash every file of some folders on this host, several at a time; POSIX sh and utilities. Nothing is written but below
# the state folder, where sums are remembered by size, inode, mtime, ctime and path: what has not changed since is not
# read again, and a run that was ended goes on where it was. Lines are "@@NONCE kind<tab>fields":
#   L base64          a piece of the look's answer, when one was asked for
#   M text            why nothing can be remembered
#   D number path     a folder, resolved      A number   it cannot be entered
#   F number size path   a file of it         K sum path   remembered      H sum path   hashed now
#   E text            what a tool said        Z          the end: all was tried
# $1 nonce  $2 state folder (below the home if not absolute)  $3 auto|always  $4 processes ("": one a core)  $5 how many folders
# then the folders, then (if asked) the look's script and its words

tell() { # text
  printf '@@%s %s\n' "$nonce" "$1"
}

look() { # script words...
  text=$1
  shift
  sh -c "$text" script "$@" | base64 | tr -d '\n' | fold -w 4000 | sed "s/^/@@$nonce L$tab/"
  echo
}

prepare() { # state folder
  state=$1
  [ "${state#/}" != "$state" ] || state=${HOME:-/nowhere}/$state
  umask 077
  work=$state/verify.$$
  if ! mkdir -p "$work" 2>/dev/null; then
    tell "M$tab$state cannot be written"
    for state in "${TMPDIR:-/tmp}" /var/tmp /dev/shm; do
      state=$state/beamdeploy.$$
      ! mkdir "$state" 2>/dev/null || break
    done
    work=$state/verify.$$
    mkdir "$work" || exit 1
    unkept=$state
  fi
  [ -e "$state/hashes" ] || : >"$state/hashes"
  : >"$work/journal"
  : >"$work/list"
  : >"$work/todo"
}

# Files as "number size inode mtime ctime path". Hidden ones (.cache, .git) hold no weights.
list() { # number folder
  if ! cd -P "$2" 2>/dev/null; then
    tell "A$tab$1"
    return
  fi
  at=$(pwd -P)
  tell "D$tab$1$tab$at"
  find -L . -name '.?*' -prune -o -type f -exec stat -L -c "$form" {} + 2>/dev/null |
    number=$1 at=${at%/} awk 'NF > 4 && match($0, / \.\//) {
      print ENVIRON["number"] " " substr($0, 1, RSTART) ENVIRON["at"] substr($0, RSTART + 2) }' >>"$work/list"
}

# Join what is remembered with the files: prints F and K lines, writes what is left to do, and the memory anew.
# A sum is remembered only if the file had not changed for two seconds when it was listed: a clock tick could hide a
# later write otherwise.
join='
  function path_of(key) { sub(/^[^ ]+ [^ ]+ [^ ]+ [^ ]+ /, "", key); return key }
  function tell(text) { print "@@" ENVIRON["nonce"] " " text }
  phase == "known" { known[substr($0, 66)] = $1; next }
  phase == "journal" {
    if ($1 == "=") { key = substr($0, 3); of[path_of(key)] = key }
    else if (substr($0, 67) in of) known[of[substr($0, 67)]] = $1
    next
  }
  {
    key = substr($0, length($1) + 2)
    path = path_of(key)
    tell("F\t" $1 "\t" $2 "\t" path)
    if (path in current) next
    current[path] = key
    if (ENVIRON["mode"] != "always" && key in known) { tell("K\t" known[key] "\t" path); next }
    print $2 " " path > (ENVIRON["work"] "/todo")
    if ($5 + 2 <= ENVIRON["now"]) print "= " key > (ENVIRON["work"] "/journal")
  }
  END {
    for (key in known) {
      path = path_of(key)
      if (!(path in current) || current[path] == key) print known[key] " " key > (ENVIRON["work"] "/hashes")
    }
  }'

# Sums of this run, and of runs that were ended, go into the memory; the latter's folders are removed.
remember() { # list
  set -- "$1"
  for journal in "$state"/verify.*/journal; do
    set -- "$@" phase=journal "$journal"
  done
  list=$1
  shift
  : >"$work/hashes"
  awk "$join" phase=known "$state/hashes" "$@" phase=list "$list"
  mv "$work/hashes" "$state/hashes"
  for old in "$state"/verify.*; do
    pid=${old##*.}
    [ "$pid" = $$ ] || kill -0 "$pid" 2>/dev/null || rm -r "$old"
  done
}

sums() { # the lines of "sum *path" (openssl dgst -r) or "sum  path" (sha256sum)
  while IFS= read -r line; do
    sum=${line%% *}
    path=${line#* }
    if [ ${#sum} -eq 64 ] && [ -z "${sum##[0-9a-f]*}" ]; then
      printf '%s *%s\n' "$sum" "${path#?}" >>"$work/journal"
      tell "H$tab$sum$tab${path#?}"
    else
      tell "E$tab$line"
    fi
  done
}

summed() { # processes files-a-process which
  # shellcheck disable=SC2086 # the tool's words
  awk "$3"' { sub(/^[0-9]+ /, ""); print }' "$work/sorted" | tr '\n' '\0' | xargs -0 -r -n "$2" -P "$1" $tool
}

main() {
  export LC_ALL=C
  tab='	'
  nonce=$1 mode=$3 jobs=$4 folders=$5 unkept='' now=$(date +%s)
  prepare "$2"
  shift 5
  form='%s %i %.9Y %.9Z %n'
  case $(stat -c %.9Y / 2>/dev/null) in
    *[0-9].[0-9]*) ;;
    *) form='%s %i %Y %Z %n' ;;
  esac
  number=0
  while [ "$number" -lt "$folders" ]; do
    list "$number" "$1"
    number=$((number + 1))
    shift
  done
  cd /
  [ $# -eq 0 ] || look "$@"
  export nonce mode work now
  remember "$work/list"
  tool='sha256sum'
  # five times faster than the sha256sum of many distributions
  if openssl version >/dev/null 2>&1; then tool='openssl dgst -sha256 -r'; fi
  [ -n "$jobs" ] || jobs=$(nproc 2>/dev/null || getconf _NPROCESSORS_ONLN)
  # the largest first, so that no core is left with one at the end. Small ones cost more by their processes than by their
  # bytes: many a process, and one process at a time, since the lines of several would mix
  sort -rn "$work/todo" >"$work/sorted"
  { summed "$jobs" 1 '$1 >= 1048576'; summed 1 64 '$1 < 1048576'; } 2>&1 | sums
  remember /dev/null >/dev/null
  rm -r "$work" ${unkept:+"$unkept"}
  tell Z
}

main "$@" </dev/null

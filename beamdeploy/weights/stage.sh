# The parts of staging that a host does; POSIX sh and utilities. $1 says which, $2 our own folder for this staging (below
# the home if not absolute). Names of files come on stdin, since many of them are more than a command takes. Progress
# lines are "@@P bytes". A folder is filled as .NAME.unfinished beside its place, with a marker in it, and gets its name when it is verified.

absolute() { # folder
  case $1 in
    /*) printf %s "$1" ;;
    *) printf %s "${HOME:-/nowhere}/$1" ;;
  esac
}

names() { # stdin: names for the part that comes next, one a line
  umask 077
  mkdir -p "$at" && cat >"$at/names"
}

size() { # folder
  du -sb "$1" 2>/dev/null || du -sk "$1" | awk '{ print $1 * 1024 }'
}

# Run words and say once a second how much there is. What sleeps holds no pipe, so that nobody waits for it.
watched() { # folder words...
  (
    # a signal that comes while the subshell starts is lost, so it also ends with its parent
    while sleep 1 >/dev/null 2>&1 && kill -0 $$; do
      at=$(size "$1" 2>/dev/null)
      printf '@@P %s\n' "${at%%[!0-9]*}"
    done
  ) &
  ticker=$!
  shift
  "$@"
  status=$?
  kill "$ticker"
  return "$status"
}

begin() { # final unfinished marker; stdin: what is right already, which is linked and takes no room
  final=$1 unfinished=$2
  mkdir -p "$unfinished" && printf '%s\n' "$3" >"$unfinished/.beamdeploy-unfinished" || exit 1
  while IFS= read -r name; do
    [ ! -e "$unfinished/$name" ] || continue
    case $name in */*) mkdir -p "$unfinished/${name%/*}" ;; esac
    ln -L -- "$final/$name" "$unfinished/$name" 2>/dev/null || cp -pL -- "$final/$name" "$unfinished/$name" || exit 1
  done
}

drop() { # unfinished; stdin: what is wrong
  cd "$1" || exit 1
  tr '\n' '\0' | xargs -0 rm -f --
}

# The folder gets its name. What stood there is kept aside. What is known of its hashes goes with it.
finish() { # final unfinished state
  final=$1 unfinished=$2
  state=$(absolute "$3")
  sync -f "$unfinished" 2>/dev/null || sync
  if [ -e "$final" ] || [ -L "$final" ]; then
    aside=$(dirname -- "$final")/.${final##*/}.replaced-$(date +%Y%m%d%H%M%S)
    mv -- "$final" "$aside" && echo "@@A $aside" || exit 1
  fi
  mv -- "$unfinished" "$final" || exit 1
  rm -f -- "$final/.beamdeploy-unfinished"
  if [ -w "$state/hashes" ]; then
    from=$(cd -P "$(dirname -- "$final")" && pwd)/${unfinished##*/}/ to=$(cd -P "$final" && pwd)/ awk '{
      at = index($0, " " ENVIRON["from"])
      if (at) print substr($0, 1, at) ENVIRON["to"] substr($0, at + 1 + length(ENVIRON["from"]))
      else print
    }' "$state/hashes" >"$state/hashes.$$" && mv "$state/hashes.$$" "$state/hashes"
  fi
  rm -rf "$at"
}

key() { # a key of this host for one staging; only its public half is told
  umask 077
  mkdir -p "$at" && rm -f "$at/key" "$at/key.pub" &&
    ssh-keygen -q -t ed25519 -N '' -C beamdeploy-stage -f "$at/key" >&2 && cat "$at/key.pub"
}

quoted() { # words...: as one line of sh
  for word in "$@"; do
    printf "'%s' " "$(printf '%s\n' "$word" | sed "s/'/'\\\\''/g")"
  done
}

# A server of our own on a free port, for one key and two commands, that ends with the connection which holds this. No
# account's authorized_keys is touched.
send() { # public-key folder [image docker...]: files below the folder, or the image
  umask 077
  at=$at.$$
  sshd=$(command -v sshd || echo /usr/sbin/sshd)
  command -v rsync >/dev/null || { echo "error rsync is not installed on the source"; exit; }
  [ -x "$sshd" ] || { echo "error there is no sshd on the source"; exit; }
  mkdir -p "$at" && ssh-keygen -q -t ed25519 -N '' -f "$at/host" || { echo "error no key can be made"; exit; }
  authorized=$1 folder=$(quoted "$2")
  shift 2
  saving=false
  [ $# -eq 0 ] || saving=$(image=$1 && shift && quoted "$@" save "$image")
  cat >"$at/serve" <<END
set -f
export PATH=$(quoted "$PATH") ${DOCKER_HOST:+DOCKER_HOST=$(quoted "$DOCKER_HOST")}
case \$SSH_ORIGINAL_COMMAND in
  'rsync --server --sender '*) cd $folder && exec rsync --server --sender \${SSH_ORIGINAL_COMMAND#rsync --server --sender } ;;
  reached) echo reached ;;
  'image zstd') $saving | zstd -q -1 -T0 -c ;;
  image) $saving ;;
esac
END
  printf '%s\n' "$authorized" >"$at/authorized"
  pam=no
  if [ "$(id -u)" = 0 ] && [ -e /etc/pam.d/sshd ]; then pam=yes; fi
  for try in 1 2 3 4 5 6 7 8; do
    port=$((20000 + $(od -An -N2 -tu2 /dev/urandom) % 40000))
    cat >"$at/config" <<END
Port $port
HostKey $at/host
AuthorizedKeysFile $at/authorized
PidFile none
UsePAM $pam
StrictModes no
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
AllowTcpForwarding no
PermitTTY no
MaxStartups 100
UseDNS no
ForceCommand exec sh $at/serve
END
    "$sshd" -D -f "$at/config" -E "$at/log" &
    server=$!
    trap 'kill $server; rm -r "$at"' EXIT
    trap 'exit' TERM HUP INT
    sleep 0.3 2>/dev/null || sleep 1
    if kill -0 "$server" 2>/dev/null; then
      echo "port $port $(id -un) $(cut -d ' ' -f 1,2 "$at/host.pub") $(hostname -I 2>/dev/null)"
      while [ -n "$(timeout 30 head -n 1)" ]; do :; done
      exit
    fi
  done
  echo "error sshd does not start: $(tail -n 1 "$at/log")"
}

# Take files from a sender: whole ones, in place; what an earlier run began is gone on with. All are hashed afterwards.
receive() { # unfinished streams port user host-key addresses
  unfinished=$1 streams=$2
  command -v rsync >/dev/null || { echo "rsync is not installed on this host"; exit 40; }
  shift 2
  reach "$@"
  umask 022
  watched "$unfinished" spread
}

# Write the configuration of ssh with the first address by which the sender is reached. Ends with 41 where there is none.
reach() { # port user host-key addresses
  umask 077
  port=$1 user=$2 hostkey=$3 addresses=$4
  printf '* %s\n' "$hostkey" >"$at/known"
  reached=
  for address in $addresses; do
    cat >"$at/config" <<END
Host source
HostName $address
Port $port
User $user
IdentityFile $at/key
IdentitiesOnly yes
UserKnownHostsFile $at/known
GlobalKnownHostsFile /dev/null
StrictHostKeyChecking yes
CheckHostIP no
BatchMode yes
ConnectTimeout 5
ServerAliveInterval 15
Compression no
Ciphers aes128-gcm@openssh.com,aes256-gcm@openssh.com,chacha20-poly1305@openssh.com,aes128-ctr
END
    if [ "$(ssh -F "$at/config" source reached 2>"$at/said")" = reached ]; then
      reached=$address
      break
    fi
  done
  [ -n "$reached" ] || { cat "$at/said"; exit 41; }
}

# Hash large files while others still come: the verification afterwards finds the sums as if it had been interrupted. A
# file counts once it has not changed for two seconds, as there; what is wrong here is only not remembered.
summing() { # unfinished; stdin: "bytes size name" of each file that has arrived
  umask 077
  journal=${at%/stage/*}/verify.$$
  mkdir -p "$journal" && cd -P "$1" || { cat >/dev/null; return; } # nobody writes into a pipe without a reader
  folder=$(pwd -P)
  form='%s %i %.9Y %.9Z' tool='sha256sum'
  case $(stat -c %.9Y / 2>/dev/null) in *[0-9].[0-9]*) ;; *) form='%s %i %Y %Z' ;; esac
  if openssl version >/dev/null 2>&1; then tool='openssl dgst -sha256 -r'; fi
  while read -r _ size name; do
    [ "${size%%[!0-9]*}" -ge 16777216 ] 2>/dev/null || continue
    while key=$(stat -L -c "$form" -- "$name") && changed=${key##* } &&
      [ "$(date +%s)" -lt $((${changed%%.*} + 3)) ]; do
      sleep 1
    done
    sum=$($tool "$folder/$name" </dev/null) && [ "$(stat -L -c "$form" -- "$name")" = "$key" ] &&
      printf '= %s %s\n%s *%s\n' "$key" "$folder/$name" "${sum%% *}" "$folder/$name"
  done >>"$journal/journal"
}

spread() { # over some connections at a time
  rm -f "$at/arrived"
  mkfifo "$at/arrived" || return
  summing "$unfinished" <"$at/arrived" &
  hasher=$!
  exec 8>"$at/arrived"
  awk -v streams="$streams" -v at="$at" '{ print > (at "/list." (NR - 1) % streams) }' "$at/names"
  pids=
  stream=0
  while [ "$stream" -lt "$streams" ] && [ -e "$at/list.$stream" ]; do
    rsync -t --append --no-compress --no-dirs --out-format='%b %l %n' --files-from="$at/list.$stream" \
      -e "ssh -F $at/config" source:./ "$unfinished/" >&8 &
    pids="$pids $!"
    stream=$((stream + 1))
  done
  failed=0
  for pid in $pids; do
    wait "$pid" || failed=$?
  done
  exec 8>&-
  kill "$hasher" 2>/dev/null
  rm -f "$at"/list.* "$at/arrived"
  return "$failed"
}

token() { # stdin: a token for the hub, or nothing
  umask 077
  mkdir -p "$at" && cat >"$at/token"
}

hub() { # unfinished endpoint repository revision image docker...: by hf, of this host or else of the image
  file=$at/token docker=''
  trap 'rm -f "$file"; [ -z "$docker" ] || eval "$docker rm --force $container >/dev/null 2>&1"' EXIT
  trap 'exit 143' TERM HUP INT
  unfinished=$1 repository=$3 revision=$4 image=$5
  [ -z "$2" ] || export HF_ENDPOINT="$2"
  shift 5
  hf=
  for each in hf "$HOME/.local/bin/hf" /usr/local/bin/hf /opt/hf/bin/hf; do
    if [ -z "$hf" ] && command -v "$each" >/dev/null; then hf=$each; fi
  done
  if [ -z "$hf" ]; then
    [ -n "$image" ] || { echo "hf is not installed on this host"; exit 42; }
    echo "@@S hf is not on this host: it runs in $image"
    docker=$(quoted "$@") container=beamdeploy-hf-${at##*/}
    watched "$unfinished" contained "$@" || exit
    arrived
    exit
  fi
  [ ! -s "$file" ] || HF_TOKEN=$(cat "$file")
  export HF_TOKEN="${HF_TOKEN-}" HF_HUB_DISABLE_PROGRESS_BARS=1 HF_HUB_DISABLE_TELEMETRY=1 NO_COLOR=1
  [ -n "$HF_TOKEN" ] || unset HF_TOKEN
  watched "$unfinished" download || exit
  arrived
}

# Where the hub refuses, hf takes a folder that is there for the answer and ends with 0.
arrived() {
  while IFS= read -r name; do
    [ -e "$unfinished/$name" ] || exit 43
  done <"$at/names"
}

download() {
  tr '\n' '\0' <"$at/names" |
    xargs -0 -n 500 "$hf" download --revision "$revision" --local-dir "$unfinished" "$repository"
}

# The token is a file for the container, too. It runs as this user, who owns what it writes.
contained() { # docker...
  "$@" rm --force "$container" >/dev/null 2>&1
  set -- "$@" run --rm --init --name "$container" --user "$(id -u):$(id -g)" --network host
  set -- "$@" --mount "type=bind,src=$unfinished,dst=/staged" --workdir /staged --entrypoint hf
  if [ -s "$file" ]; then
    set -- "$@" --mount "type=bind,src=$file,dst=/run/hf-token,readonly" -e HF_TOKEN_PATH=/run/hf-token
  fi
  for name in HF_ENDPOINT http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY; do
    value=$(eval "printf %s \"\${$name-}\"")
    [ -z "$value" ] || set -- "$@" -e "$name=$value"
  done
  set -- "$@" -e HF_HOME=/tmp/hf -e HF_HUB_DISABLE_PROGRESS_BARS=1 -e HF_HUB_DISABLE_TELEMETRY=1 -e NO_COLOR=1 "$image"
  tr '\n' '\0' <"$at/names" |
    xargs -0 -n 500 "$@" download --revision "$revision" --local-dir /staged "$repository"
}

push() { # folder unfinished ssh-configuration: from this machine to a host
  umask 077
  trap 'rm -r "$at"' EXIT
  trap 'exit 143' TERM HUP INT
  printf '%s\n' "$3" >"$at/config" || exit 1
  folder=$1 unfinished=$2
  command -v rsync >/dev/null || { echo "rsync is not installed here"; exit 40; }
  umask 022
  rsync -t -s --append --no-compress --info=progress2 --no-human-readable --files-from="$at/names" -e "ssh -F $at/config" "$folder/" "target:$unfinished/"
}

packs() { # by what an image may be made smaller on its way
  ! command -v zstd >/dev/null || echo zstd
}

# An image of the sender, into this host's docker. It is there as a whole or not at all, and is asked for by its id then.
receive_image() { # port user host-key addresses how docker...
  reach "$@"
  trap 'rm -rf "$at"' EXIT
  trap 'exit 143' TERM HUP INT
  shift 4
  how=$1
  shift
  ssh -F "$at/config" source "image${how:+ $how}" | unpack "$how" "$@"
}

unpack() { # how docker...; stdin: what docker save gave
  how=$1
  shift
  case $how in zstd) zstd -dcq ;; *) cat ;; esac | counted | "$@" load --quiet
}

counted() {
  if dd if=/dev/null of=/dev/null status=progress 2>/dev/null; then dd bs=1M status=progress; else cat; fi
}

push_image() { # how image ssh-configuration the-other-end's-command docker...: of this machine's docker
  umask 077
  how=$1 image=$2 command=$4
  mkdir -p "$at" && printf '%s\n' "$3" >"$at/config" || exit 1
  trap 'rm -r "$at"' EXIT
  trap 'exit 143' TERM HUP INT
  shift 4
  "$@" save "$image" |
    case $how in zstd) zstd -q -1 -T0 -c ;; *) cat ;; esac |
    ssh -F "$at/config" target "$command"
}

export LC_ALL=C
what=$1
at=$(absolute "$2")
shift 2
"$what" "$@"

#!/bin/bash
# A bare GPU machine as an ordinary beamdeploy host: a Docker engine, an image registry and an SSH server, from Debian
# packages that travelled with you, beside the system's own files. Everything lies below one folder.
#   host.sh ROOT unpack DIR        unpack the *.deb of DIR below ROOT
#   host.sh ROOT up                start all three; ROOT/keys/user is the key to log in with
#   host.sh ROOT image NAME        make the server's image, push it, print its reference; see `image` for what it reads
#   host.sh ROOT down              stop all three
set -eu
root=$1 action=$2
libs=$root/usr/lib/x86_64-linux-gnu:$root/lib/x86_64-linux-gnu
export XTABLES_LIBDIR=$root/usr/lib/x86_64-linux-gnu/xtables
export PATH=$root/bin-first:$root/usr/bin:$root/usr/sbin:$root/sbin:$root/bin:$PATH
export LD_LIBRARY_PATH=$libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
registry=127.0.0.1:5000

unpack() {
  mkdir -p "$root/usr/sbin"
  for package in "$1"/*.deb; do dpkg -x "$package" "$root"; done
  for name in iptables ip6tables; do ln -sf xtables-legacy-multi "$root/usr/sbin/$name"; done
}

up() {
  mkdir -p /run/sshd "$root/keys" "$root/bin-first"
  id sshd >/dev/null 2>&1 || useradd -r -M -d /run/sshd -s /usr/sbin/nologin sshd
  # dockerd takes --gpus when it finds this name; it injects nothing: containers get the GPUs as device files
  printf '#!/bin/sh\nexit 0\n' >"$root/bin-first/nvidia-container-runtime-hook"
  chmod +x "$root/bin-first/nvidia-container-runtime-hook"
  mountpoint -q /sys/fs/cgroup || mount -t tmpfs cgroup_root /sys/fs/cgroup
  setsid dockerd --data-root "$root/docker" --exec-root "$root/exec" --pidfile "$root/dockerd.pid" \
    -H unix:///var/run/docker.sock >"$root/dockerd.log" 2>&1 </dev/null &
  printf 'version: 0.1\nstorage: {filesystem: {rootdirectory: %s}}\nhttp: {addr: "%s"}\n' \
    "$root/registry" "$registry" >"$root/registry.yml"
  setsid docker-registry serve "$root/registry.yml" >"$root/registry.log" 2>&1 </dev/null &
  echo $! >"$root/registry.pid"
  [ -e "$root/keys/host" ] || ssh-keygen -q -t ed25519 -N '' -f "$root/keys/host"
  [ -e "$root/keys/user" ] || ssh-keygen -q -t ed25519 -N '' -f "$root/keys/user"
  cp "$root/keys/user.pub" "$root/keys/authorized"
  chmod 600 "$root"/keys/*
  printf '[127.0.0.1]:2222 %s\n' "$(cut -d' ' -f1,2 "$root/keys/host.pub")" >"$root/keys/known_hosts"
  cat >"$root/sshd_config" <<C
Port 2222
ListenAddress 127.0.0.1
HostKey $root/keys/host
AuthorizedKeysFile $root/keys/authorized
PermitRootLogin yes
StrictModes no
UsePAM no
PidFile $root/sshd.pid
Subsystem sftp internal-sftp
SetEnv PATH=$PATH LD_LIBRARY_PATH=$LD_LIBRARY_PATH
C
  "$(command -v sshd)" -f "$root/sshd_config" -E "$root/sshd.log"
  for _ in $(seq 60); do
    if docker version >/dev/null 2>&1; then return; fi
    sleep 0.5
  done
  tail -n 20 "$root/dockerd.log"
  exit 1
}

# $PYTHON: the machine's Python with torch and transformers; $SITE: a folder of what it lacks for serving; $LIBRARIES: where
# the driver's libraries are inside a container. A program of this image is found by the mounts of docker_args.
image() {
  name=$registry/$1 folder=$root/image
  rm -rf "$folder"
  mkdir -p "$folder/busybox" "$folder/tmp"
  cp "$root/bin/busybox" "$folder/busybox/sh"
  cp -r "$SITE" "$folder/site"
  printf '#!/busybox/sh\nexec %s -m transformers.cli.transformers serve "$@"\n' "$PYTHON" >"$folder/serve"
  chmod +x "$folder/serve"
  chmod 1777 "$folder/tmp"
  programs=$(dirname "$PYTHON"):$(dirname "$(command -v nvidia-smi)"):/usr/bin
  tar -C "$folder" -c . | docker import -c 'ENTRYPOINT ["/serve"]' -c "ENV PYTHONPATH=/site" -c "ENV HF_HOME=/tmp/hf" \
    -c "ENV LD_LIBRARY_PATH=$LIBRARIES" -c "ENV PATH=$programs" -c "ENV NVIDIA_REQUIRE_CUDA=cuda>=13.0" \
    - "$name" >/dev/null
  docker push -q "$name" >/dev/null
  # without the local name: the first apply must pull it
  docker rmi "$name" >/dev/null
  echo "$name"
}

down() {
  for name in sshd registry dockerd; do kill "$(cat "$root/$name.pid")"; done
}

"$action" "${@:3}"

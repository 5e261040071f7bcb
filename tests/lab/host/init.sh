#!/bin/sh
# PID 1 of a lab host, in its own mount, network, PID and host-name namespaces: brings up loopback and eth0, then
# dockerd and sshd, and reaps. $1: the host's folder  $2: its address/prefix  $3: the network whose registry is plain HTTP
set -eu
folder=$1 address=$2 network=$3

mount --make-rprivate /
hostname "$(basename "$folder")"
# /run is the host's own: docker.sock, flock files. Home and weights lie in the host's folder.
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/lock /run/sshd
chmod 1777 /run/lock
mount --bind "$folder/root" /root
mount --bind "$folder/srv" /srv
mount --bind "$folder/etc/passwd" /etc/passwd
mount --bind "$folder/etc/shadow" /etc/shadow
mountpoint -q /sys/fs/cgroup || mount -t tmpfs cgroup_root /sys/fs/cgroup

tries=0
until ip link show eth0 > "$folder/eth0"; do
    # whoever was to lay the cable is gone
    [ "$tries" -lt 1500 ] || exit 1
    tries=$((tries + 1))
    sleep 0.02
done
ip link set lo up
ip address add "$address" dev eth0
ip link set eth0 up

/usr/sbin/sshd -D -f "$folder/etc/sshd_config" -E "$folder/sshd.log" &
PATH=$folder/bin:$PATH
cd /
dockerd --config-file "$folder/etc/daemon.json" --data-root "$folder/docker" --exec-root /run/docker-exec \
    --pidfile /run/docker.pid --host unix:///run/docker.sock --host "unix://$folder/docker.sock" \
    --insecure-registry "$network" > "$folder/dockerd.log" 2>&1 &

# a shell's wait reaps adopted processes too
while :; do
    wait
    sleep 0.2
done

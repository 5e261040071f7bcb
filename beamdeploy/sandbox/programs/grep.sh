# `grep` in a sandbox: the machine's own, but for what /proc tells of the host. There is one dockerd, the sandbox's; the
# memory is the profile's; a container's process is in its container's group.
# Words: the sandbox's folder, the machine's grep, those of grep.
folder=$1 grep=$2
shift 2
for last; do :; done
case "$1 $2 $last" in
  '-lx dockerd '*) echo "$folder/proc/1/comm" ;;
  *' /proc/meminfo') printf 'MemTotal: %s kB\nMemAvailable: %s kB\n' 2147483648 1932735276 ;;
  '-H . '*/cgroup) exec "$folder/own/groups" "$@" ;;
  *) exec "$grep" "$@" ;;
esac

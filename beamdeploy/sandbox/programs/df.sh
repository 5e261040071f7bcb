# `df -P` in a sandbox: one large disk, full where the fault says so. Words: the sandbox's folder, those of df.
# No Python, which would take ten times as long, and a look asks four times.
settings=$1/settings.json
shift
[ -r "$settings" ] || exit 1
whole=8589934592 name=1024-blocks percent=25
for word; do
  case $word in -*i*) whole=536870912 name=Inodes ;; esac
done
used=$((whole / 4))
while read -r line; do
  case $line in '"disk_full": true'*) used=$whole percent=100 ;; esac
done < "$settings"
echo "Filesystem $name Used Available Capacity Mounted on"
for word; do
  case $word in -*) ;; *) echo "/dev/nvme0n1 $whole $used $((whole - used)) $percent% /" ;; esac
done

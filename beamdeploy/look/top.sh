# GPUs, who uses them, and the running containers; read-only. $1…: the docker words. Prints lines "gpu …", "app …",
# "/proc/PID/cgroup:…" and "box …".

smi() {
  for path in nvidia-smi /usr/bin/nvidia-smi /usr/local/bin/nvidia-smi /usr/local/nvidia/bin/nvidia-smi /usr/lib/wsl/lib/nvidia-smi; do
    if command -v "$path" >/dev/null 2>&1; then "$path" "$@"; return; fi
  done
  echo "there is no nvidia-smi" >&2
}
smi --query-gpu=index,uuid,memory.used,memory.total,utilization.gpu,name --format=csv,noheader,nounits | sed 's/^/gpu /'
apps=$(smi --query-compute-apps=pid,gpu_uuid,process_name --format=csv,noheader,nounits 2>/dev/null)
printf '%s\n' "$apps" | sed -n 's/^ *[0-9]/app &/p'
for pid in $(printf '%s\n' "$apps" | sed -n 's/^ *\([0-9][0-9]*\),.*/\1/p'); do
  grep -H . "/proc/$pid/cgroup" 2>/dev/null
done
"$@" ps --no-trunc --format '{{.ID}}{{"\t"}}{{.Names}}{{"\t"}}{{.Status}}{{"\t"}}{{.Label "beamdeploy.name"}}{{"\t"}}{{.Label "beamdeploy.digest"}}{{"\t"}}{{.Label "beamdeploy.spec"}}' | sed 's/^/box /'

# GPUs, who uses them, and the running containers; read-only. $1…: the docker words. Prints lines "gpu …", "app …",
# "/proc/PID/cgroup:…" and "box …". smi.sh stands before it.

{ smi --query-gpu=index,uuid,memory.used,memory.total,utilization.gpu,name --format=csv,noheader,nounits ||
  { [ $? -ne 127 ] || echo "there is no nvidia-smi" >&2; }; } | sed 's/^/gpu /'
apps=$(smi --query-compute-apps=pid,gpu_uuid,process_name --format=csv,noheader,nounits 2>/dev/null)
printf '%s\n' "$apps" | sed -n 's/^ *[0-9]/app &/p'
for pid in $(printf '%s\n' "$apps" | sed -n 's/^ *\([0-9][0-9]*\),.*/\1/p'); do
  grep -H . "/proc/$pid/cgroup" 2>/dev/null
done
"$@" ps --no-trunc --format '{{.ID}}{{"\t"}}{{.Names}}{{"\t"}}{{.Status}}{{"\t"}}{{.Label "beamdeploy.name"}}{{"\t"}}{{.Label "beamdeploy.digest"}}{{"\t"}}{{.Label "beamdeploy.spec"}}' | sed 's/^/box /'

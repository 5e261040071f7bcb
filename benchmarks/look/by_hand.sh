# The questions of a look, as someone would write them by hand, all at the same time: by_hand.sh IMAGE MODEL_DIR FOLDER...
set -u
image=$1 model_dir=$2
shift 2
at=$(mktemp -d)
trap 'rm -rf "$at"' EXIT
docker version --format '{{json .}}' >"$at/version" 2>&1 &
{
  docker info --format '{{json .}}'
  df -Pk /var/lib/docker
  df -Pi /var/lib/docker
  grep -lx dockerd /proc/[0-9]*/comm
} >"$at/info" 2>&1 &
{
  docker ps --all --no-trunc --format '{{.ID}} {{.Names}} {{.Ports}}'
  docker container inspect beam
} >"$at/containers" 2>&1 &
{
  docker images --no-trunc --digests
  docker image inspect "$image"
} >"$at/images" 2>&1 &
nvidia-smi --query-gpu=index,name,uuid,memory.total,memory.used,driver_version,compute_mode,ecc.errors.uncorrected.volatile.total,compute_cap,mig.mode.current,fabric.state --format=csv,nounits >"$at/gpus" 2>&1 &
nvidia-smi --query-compute-apps=pid,process_name,used_gpu_memory,gpu_uuid --format=csv,noheader,nounits >"$at/apps" 2>&1 &
nvidia-smi --version >"$at/cuda" 2>&1 &
{
  uname -m
  date +%s
  grep -E '^Mem(Total|Available):' /proc/meminfo
} >"$at/system" 2>&1 &
ss -Hltnp >"$at/ports" 2>&1 &
df -Pk "$model_dir" >"$at/kib" 2>&1 &
df -Pi "$model_dir" >"$at/inodes" 2>&1 &
for folder; do
  {
    cd "$model_dir/$folder" || exit
    stat -L -c '%s %n' ./*
    cat config.json hf_quant_config.json generation_config.json 2>/dev/null
    grep -c chat_template tokenizer_config.json 2>/dev/null
    {
      for shard in *.safetensors; do
        length=$(head -c 8 "$shard" | od -An -tu8)
        head -c $((length + 8)) "$shard"
        echo
      done
    } | awk -v RS='}' '/data_offsets/ { sub(/.*data_offsets":\[/, ""); split($0, ends, ","); if (ends[2] + 0 > most) most = ends[2] + 0; count++ } END { print count, most }'
    [ ! -f model.safetensors.index.json ] || awk -v RS=, '/safetensors/ { count++ } END { print count }' model.safetensors.index.json
  } >"$at/folder-$folder" 2>&1 &
done
wait
cat "$at"/*

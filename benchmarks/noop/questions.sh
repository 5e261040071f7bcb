# The questions of a no-op apply, asked one after the other: questions.sh IMAGE DIGEST PORT MODEL_DIR FOLDER...
set -eu
image=$1 digest=$2 port=$3 model_dir=$4
shift 4

root=$(docker info --format '{{.DockerRootDir}}')
docker image inspect --format '{{.Id}} {{json .RepoDigests}} {{.Architecture}}' "$image"
state=$(docker container inspect --format '{{.State.Status}} {{index .Config.Labels "beamdeploy.digest"}}' beam)
[ "$state" = "running $digest" ]
docker ps --all --format '{{.Names}} {{.Ports}}'
nvidia-smi --query-gpu=index,name,uuid,memory.total,memory.used,compute_cap,mig.mode.current,driver_version --format=csv,noheader
nvidia-smi --query-compute-apps=pid,process_name,used_gpu_memory,gpu_uuid --format=csv,noheader
ss -Hltnp "sport = :$port"
df -Pk "$model_dir" "$root"
for folder; do
  cd "$model_dir/$folder"
  stat -c '%s %n' ./*
  cat ./*config.json
  if [ -f model.safetensors.index.json ]; then wc -c model.safetensors.index.json; fi
  for shard in *.safetensors; do
    head -c 8 "$shard" | od -An -tu8
  done
done
curl -fsS "http://127.0.0.1:$port/readiness" "http://127.0.0.1:$port/v1/models"

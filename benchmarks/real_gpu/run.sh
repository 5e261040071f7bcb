#!/bin/bash
# The whole run on a bare GPU machine: host, model, image, steps. docs/real-gpu.md says what has to travel there.
#   ROOT    a folder that may be filled          WHEELS  folder of wheels that the machine's Python lacks
#   PYTHON  the machine's Python with torch      DEBS    folders of Debian packages, parted by blanks; "": unpacked before
#   OUT     where the results go                 MOUNTS  docker_args: what a container needs of the machine, as JSON
#   DEVICE  cuda:0                               LIBRARIES  the driver's libraries, as LD_LIBRARY_PATH inside a container
set -eu
here=$(cd "$(dirname "$0")" && pwd)
device=${DEVICE:-cuda:0}
mkdir -p "$ROOT" "$OUT"
stamp() { printf '%s %s\n' "$(date +%T)" "$1"; }

stamp begin
for folder in ${DEBS:-}; do bash "$here/host.sh" "$ROOT" unpack "$folder"; done
export SITE=$ROOT/site
[ -d "$SITE" ] || "$PYTHON" -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --target "$SITE" "$WHEELS"/*.whl
export PYTHONPATH=$SITE:$(cd "$here/../.." && pwd)
stamp unpacked
bash "$here/host.sh" "$ROOT" up
stamp "host is up"
if [ ! -d "$ROOT/models" ]; then
  "$PYTHON" "$here/model.py" "$ROOT/models" ${MODEL_SIZE:-} --device "$device" >"$OUT/model.json"
  [ "$device" = cpu ] || "$PYTHON" "$here/model.py" "$ROOT/models" --device "$device" --measure >>"$OUT/model.json"
  cat "$OUT/model.json"
fi
stamp "model is written"
image=$(bash "$here/host.sh" "$ROOT" image transformers-serve:1)
stamp "image is $image"
export PATH=$ROOT/usr/bin:$ROOT/usr/sbin:$PATH
export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$ROOT/usr/lib/x86_64-linux-gnu:$ROOT/lib/x86_64-linux-gnu
"$PYTHON" "$here/steps.py" --folder "$ROOT/work" --models "$ROOT/models" --keys "$ROOT/keys" --image "$image" \
  --out "$OUT" --device "$device" --gpu-access "${ACCESS:-devices}" --docker-args "$MOUNTS" ${STEPS:-}
stamp end

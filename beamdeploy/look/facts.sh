# One read-only look at a host; POSIX sh and utilities. Words are key=value; see look/__init__.py for who sends them.
# smi.sh stands before it. Answers are frames: "@@NONCE section exit bytes", a line break, the bytes, a line break. Nothing here writes a file.

frame() { # section exit text
  printf '@@%s %s %s %s\n%s\n' "$nonce" "$1" "$2" "${#3}" "$3"
}

# Run words; frame stdout with the exit code, then stderr as section.err. The frame of stdout goes to 4 while stderr is
# caught around it, so the two never mix, no temporary file is needed, and two forks do.
ask() { # section words...
  section=$1
  shift
  {
    err=$(
      {
        out=$("$@" 2>&3 </dev/null)
        frame "$section" "$?" "$out" >&4
      } 3>&1
    )
    frame "$section.err" 0 "$err"
  } 4>&1
}

# Run every track at the same time and print their frames one after the other.
tracks() { # track...
  track=$1
  shift
  if [ $# -eq 0 ]; then
    $track </dev/null
  else
    $track </dev/null | {
      tracks "$@"
      cat
    }
  fi
}

quoted() { # word: the same as one word of eval
  case $1 in
    *"'"*) printf "'%s'" "$(printf '%s\n' "$1" | sed "s/'/'\\\\''/g")" ;;
    *) printf "'%s'" "$1" ;;
  esac
}

dk() { eval "$limit $docker \"\$@\""; }

track_docker() {
  info=$(ask docker.info dk info --format '{{json .}}')
  printf '%s\n' "$info"
  case $info in
    *'"DockerRootDir":"/'*)
      root=${info#*'"DockerRootDir":"'}
      root=${root%%\"*}
      disk "$root"
      ;;
  esac
  found=
  for path in /usr/local/bin/docker /usr/bin/docker /snap/bin/docker /opt/bin/docker /usr/sbin/docker; do
    [ ! -x "$path" ] || found="$found$path$newline"
  done
  frame docker.paths 0 "$found"
  frame docker.user 0 "$(id -un 2>/dev/null)"
  daemons=$(grep -lx dockerd /proc/[0-9]*/comm 2>/dev/null)
  frame docker.hook 0 "$(hook)"
  frame docker.memlock 0 "$(memlock)"
}

# What containers may lock of memory, which they have from their daemon; nothing where it is not told.
memlock() {
  for comm in $daemons; do
    [ ! -r "${comm%/comm}/limits" ] || sed -n 's/^Max locked memory *\([^ ]*\).*/\1/p' "${comm%/comm}/limits"
  done
}

# Whether --gpus can work: dockerd takes the hook from its own PATH. "yes", "no", or nothing where we may not see it
# or several daemons differ.
hook() {
  answers=
  for comm in $daemons; do
    answers="$answers $(hook_of "${comm%/comm}")"
  done
  case "$answers " in
    *' no '*' yes '* | *' yes '*' no '*) ;;
    *' no '*) echo no ;;
    *' yes '*) echo yes ;;
    *) ! command -v nvidia-container-runtime-hook >/dev/null 2>&1 || echo yes ;;
  esac
}

hook_of() { # /proc/PID of a dockerd
  [ -r "$1/environ" ] || return 0
  folders_on_path=$(tr '\0' '\n' 2>/dev/null <"$1/environ" | sed -n 's/^PATH=//p')
  IFS=:
  for at in $folders_on_path; do
    if [ -x "$at/nvidia-container-runtime-hook" ]; then
      echo yes
      return
    fi
  done
  echo no
}

track_containers() {
  listed=$(ask docker.ps dk ps --all --no-trunc --format '{{.ID}}{{"\t"}}{{.Names}}{{"\t"}}{{.Label "beamdeploy.name"}}{{"\t"}}{{.Ports}}')
  printf '%s\n' "$listed"
  # ps joins adjacent ports to ranges: 0.0.0.0:8000-8010->8000-8010/tcp
  ids=$(printf '%s\n' "$listed" | name=$name ports=$ports awk -F '\t' '
    BEGIN { name = ENVIRON["name"]; count = split(ENVIRON["ports"], wanted, " ") }
    function published(text,   parts, total, i, j, range, ends) {
      total = split(text, parts, ", ")
      for (i = 1; i <= total; i++) {
        if (!match(parts[i], /:[0-9]+(-[0-9]+)?->/)) continue
        range = substr(parts[i], RSTART + 1, RLENGTH - 3)
        if (split(range, ends, "-") == 1) ends[2] = ends[1]
        for (j = 1; j <= count; j++) if (wanted[j] + 0 >= ends[1] + 0 && wanted[j] + 0 <= ends[2] + 0) return 1
      }
      return 0
    }
    function named(text,   parts, total, i) {
      total = split(text, parts, ",")
      for (i = 1; i <= total; i++) if (parts[i] == name || parts[i] == name ".previous") return 1
      return 0
    }
    NF >= 4 && $1 ~ /^[0-9a-f]+$/ && ($3 != "" || (name != "" && named($2)) || published($4)) { print $1 }')
  # shellcheck disable=SC2086 # ids are hex words
  [ -z "$ids" ] || ask docker.containers dk container inspect --format '{"id":{{json .Id}},"name":{{json .Name}},"image":{{json .Config.Image}},"image_id":{{json .Image}},"state":{{json .State.Status}},"exit_code":{{json .State.ExitCode}},"oom_killed":{{json .State.OOMKilled}},"error":{{json .State.Error}},"started_at":{{json .State.StartedAt}},"finished_at":{{json .State.FinishedAt}},"restart_count":{{json .RestartCount}},"labels":{{json .Config.Labels}},"bindings":{{json .HostConfig.PortBindings}},"ports":{{json .NetworkSettings.Ports}},"limits":{"BlkioWeight":{{json .HostConfig.BlkioWeight}},"CpuPeriod":{{json .HostConfig.CpuPeriod}},"CpuQuota":{{json .HostConfig.CpuQuota}},"CpuShares":{{json .HostConfig.CpuShares}},"NanoCpus":{{json .HostConfig.NanoCpus}},"CpusetCpus":{{json .HostConfig.CpusetCpus}},"CpusetMems":{{json .HostConfig.CpusetMems}},"Memory":{{json .HostConfig.Memory}},"MemoryReservation":{{json .HostConfig.MemoryReservation}},"MemorySwap":{{json .HostConfig.MemorySwap}},"PidsLimit":{{json .HostConfig.PidsLimit}},"RestartPolicy":{{json .HostConfig.RestartPolicy}}}}' $ids
}

track_images() {
  # shellcheck disable=SC2086 # references are words
  ask docker.image_inspect dk image inspect --format '{"id":{{json .Id}},"repo_tags":{{json .RepoTags}},"repo_digests":{{json .RepoDigests}},"arch":{{json .Architecture}},"os":{{json .Os}},"env":{{json .Config.Env}},"user":{{json .Config.User}}}' $images
}

# Older drivers refuse the whole question for one field that they do not know: then less is asked.
track_gpus() {
  for more in ,compute_cap,mig.mode.current,fabric.state ,compute_cap,mig.mode.current ''; do
    out=$(ask gpus smi --query-gpu=index,name,uuid,memory.total,memory.used,driver_version,compute_mode,ecc.errors.uncorrected.volatile.total"$more" --format=csv,nounits)
    case $out in
      *'not a valid field'*) ;;
      *) break ;;
    esac
  done
  printf '%s\n' "$out"
  if [ -r /proc/driver/nvidia/version ]; then
    frame gpus.kernel 0 "$(cat /proc/driver/nvidia/version)"
  fi
}

# Who holds GPU memory: pid, and by its control group the container.
track_processes() {
  out=$(ask gpus.apps smi --query-compute-apps=pid,process_name,used_gpu_memory,gpu_uuid --format=csv,noheader,nounits)
  printf '%s\n' "$out"
  pids=$(printf '%s\n' "$out" | sed -n 's/^ *\([0-9][0-9]*\), .*, .*/\1/p')
  [ -n "$pids" ] || return 0
  set --
  for pid in $pids; do
    set -- "$@" "/proc/$pid/cgroup"
  done
  ask gpus.groups grep -H . "$@"
}

# Its first line of CUDA is what the driver can do at most; old drivers have no such option.
track_cuda() {
  ask gpus.version smi --version
}

track_system() {
  frame system 0 "$(system_lines)"
}

# Which interface has which IPv4 address: "N: INTERFACE inet ADDRESS/BITS …" lines.
track_addresses() {
  PATH=$PATH:/usr/sbin:/sbin
  ask addresses ip -o -4 addr show
}

# Of the host itself: "key value" lines.
system_lines() {
  printf 'machine %s\nclock %s\n' "$(uname -m)" "$(date +%s)"
  grep -E '^Mem(Total|Available):' /proc/meminfo 2>/dev/null
  for at in /dev/nvidiactl /dev/nvidia-uvm /dev/nvidia[0-9] /dev/nvidia[0-9][0-9] /etc/cdi/nvidia.yaml /var/run/cdi/nvidia.yaml /dev/char/195:255 /dev/nvidia-nvswitchctl /dev/infiniband /dev/kfd; do
    [ ! -e "$at" ] || printf 'there %s\n' "$at"
  done
  for program in amd-smi rocm-smi nv-fabricmanager nvidia-ctk; do
    ! command -v "$program" >/dev/null 2>&1 || printf 'program %s\n' "$program"
  done
  [ ! -e /dev/nvidia-nvswitchctl ] || ! grep -qlx nv-fabricmanage /proc/[0-9]*/comm 2>/dev/null || echo 'running nv-fabricmanager'
}

track_ports() {
  PATH=$PATH:/usr/sbin:/sbin
  if command -v ss >/dev/null 2>&1; then
    ask ports.ss ss -Hltnp
  else
    for table in /proc/net/tcp /proc/net/tcp6; do
      [ ! -r "$table" ] || ask ports.proc awk '$4 == "0A"' "$table"
    done
  fi
}

disk() { # path, which need not be there: the file system that would hold it
  at=$1
  while [ ! -e "$at" ] && [ "$at" != / ] && [ -n "$at" ]; do
    at=${at%/*}
  done
  [ -n "$at" ] || at=/
  frame disk.path 0 "$1"
  ask disk.kib df -Pk "$at"
  ask disk.inodes df -Pi "$at"
}

track_model_dir() {
  if [ -d "$model_dir" ]; then
    frame model_dir 0 "$(readlink -f "$model_dir")"
  elif [ -e "$model_dir" ]; then
    frame model_dir 2 'not a directory'
  else
    hidden=$model_dir
    while [ ! -e "$hidden" ] && [ -n "$hidden" ]; do
      hidden=${hidden%/*}
    done
    if [ -n "$hidden" ] && [ ! -x "$hidden" ]; then
      frame model_dir 3 "$hidden"
    else
      frame model_dir 1 ''
    fi
  fi
  disk "$model_dir"
}

# One staged folder as lines, fields parted by tabs:
#   D resolved                         the folder itself
#   F size readable name link resolved a file (size - where a link dangles; link and resolved - for what is no link)
#   P size name                        a Git-LFS pointer
#   C                                  tokenizer_config.json or chat_template.json holds a chat template
#   I count shard | E text | O | T bytes   the index: tensors a shard; what is wrong with it; it is there; its total
#   M mode uid gid name                what not everybody may read (and, of a folder, enter); name / for the folder of all
#   G size name                        a leftover of a download that has another size two seconds later
#   S number implied tensors indexed missing unlisted example example bytes, N number name   safetensors
track_folder() { # number
  eval "folder=\$folder_$1"
  [ -e "$model_dir/$folder" ] || [ -L "$model_dir/$folder" ] || return 0
  if ! [ -d "$model_dir/$folder" ]; then
    frame "weights.$1" 2 'not a directory'
    return
  fi
  if ! { [ -r "$model_dir/$folder" ] && cd "$model_dir/$folder" 2>/dev/null; }; then
    frame "weights.$1" 3 'unreadable'
    return
  fi
  frame "weights.$1" 0 "$(folder_lines)"
  set -- "$1" config.json hf_quant_config.json generation_config.json
  for text in $(find -L "$2" "$3" "$4" -prune -type f -size -513 2>/dev/null); do
    [ ! -r "$text" ] || frame "weights.$1.text.$text" 0 "$(cat "$text")"
  done
}

folder_lines() {
  link=-
  [ ! -L "$model_dir/$folder" ] || link=$(readlink "$model_dir/$folder")
  printf 'D\t%s\t%s\n' "$(readlink -f .)" "$link"
  if grep -Eq '"chat_template"[[:space:]]*:[[:space:]]*("[^"]|\[)' tokenizer_config.json chat_template.json 2>/dev/null; then
    echo C
  fi
  set -- *
  for extra in .[!.]* */*.safetensors .cache/huggingface/download/*; do
    case $extra in
      '.[!.]*' | '*/*.safetensors' | '.cache/huggingface/download/*') ;;
      *) set -- "$@" "$extra" ;;
    esac
  done
  for name in "$@"; do
    if [ -L "$name" ] && [ ! -e "$name" ]; then
      printf 'F\t-\t0\t%s\t%s\t%s\n' "$name" "$(readlink -- "$name")" "$(readlink -f -- "$name")"
    fi
  done
  stat -L -c '%s %n' -- "$@" 2>/dev/null | entries
  stat -L -c '%A %u %g %n' -- "$model_dir" . "$@" 2>/dev/null | restricted
  growing "$@"
}

restricted() { # reads "mode uid gid name" lines
  awk '
    substr($1, 8, 1) == "r" && (substr($1, 1, 1) != "d" || substr($1, 10, 1) ~ /[xt]/) { next }
    { name = $0; sub(/^[^ ]+ [^ ]+ [^ ]+ /, "", name); sub(/^\/.*/, "/", name); print "M\t" $1 "\t" $2 "\t" $3 "\t" name }'
}

# Only a second look tells a download that runs from one that was left behind.
growing() { # name...
  rest=
  for name in "$@"; do
    case $name in
      *.incomplete | *.aria2 | *.part | *.partial | *.crdownload | *.tmp) rest=$rest$name$newline ;;
    esac
  done
  [ -n "$rest" ] || return 0
  before=$(sizes)
  sleep 2
  sizes | while IFS= read -r line; do
    case $newline$before$newline in
      *"$newline$line$newline"*) ;;
      *) printf 'G\t%s\t%s\n' "${line%% *}" "${line#* }" ;;
    esac
  done
}

sizes() { # of $rest
  printf '%s' "$rest" | while IFS= read -r name; do
    [ ! -f "$name" ] || stat -L -c '%s %n' -- "$name"
  done
}

entries() { # reads "size name" lines
  set --
  while IFS= read -r line; do
    size=${line%% *}
    name=${line#* }
    [ -f "$name" ] || continue
    readable=1
    [ -r "$name" ] || readable=0
    if [ -L "$name" ]; then
      printf 'F\t%s\t%s\t%s\t%s\t%s\n' "$size" "$readable" "$name" "$(readlink -- "$name")" "$(readlink -f -- "$name")"
    else
      printf 'F\t%s\t%s\t%s\t-\t-\n' "$size" "$readable" "$name"
    fi
    [ "$readable" = 1 ] || continue
    if [ "$size" -lt 1024 ] && [ "$size" -gt 0 ] && pointer; then continue; fi
    case $name in
      *.safetensors) set -- "$@" "$size" "$name" ;;
    esac
  done
  safetensors "$@"
}

pointer() { # of $name
  IFS= read -r first <"$name" || return 1
  [ "$first" = 'version https://git-lfs.github.com/spec/v1' ] || return 1
  real=-
  while read -r key value; do
    [ "$key" != size ] || real=$value
  done <"$name"
  printf 'P\t%s\t%s\n' "$real" "$name"
}

safetensors() { # size name...
  names=
  words=
  for word in "$@"; do
    if [ -z "$words" ]; then
      words=size
    else
      names=$names$word$newline
      words=
    fi
  done
  index=/dev/null
  indexed=
  if [ -r model.safetensors.index.json ]; then
    index=model.safetensors.index.json
    indexed=1
    echo O
  fi
  headers "$@" | names=$names indexed=$indexed awk "$reduce" phase=index RS=, "$index" phase=header RS=} -
}

# Only the header of each file is read: 8 bytes of length, then that many bytes. The lengths of all files are read at
# once: a large checkpoint has hundreds of files, and every process a file counts.
headers() { # size name...
  number=0
  for length in $(lengths "$@" | od -An -v -tu8); do
    number=$((number + 1))
    if [ ${#length} -gt 9 ] || [ $((length + 8)) -gt "$1" ]; then
      printf '}\001 %s -1}' "$number"
    else
      printf '}\001 %s %s}' "$number" "$length"
      {
        dd bs=8 count=1 >/dev/null 2>&1
        head -c "$length"
      } <"$2"
    fi
    shift 2
  done
  printf '}\001 0 -1}'
}

lengths() { # size name...: the first eight bytes of each; zeros, which no such size can hold, where there are fewer
  left=$#
  while [ "$left" -gt 0 ]; do
    if [ "$1" -lt 8 ]; then set -- "$@" /dev/zero; else set -- "$@" "./$2"; fi
    shift 2
    left=$((left - 2))
  done
  [ $# -eq 0 ] || head -q -c 8 "$@"
}

# Records end at "," in the index and at "}" in headers, so that neither is ever one long line in memory.
# A metadata value may hold braces; only records with data_offsets are tensors.
reduce='
  BEGIN { FS = "\""; total = split(ENVIRON["names"], name, "\n"); for (i = 1; i < total; i++) number[name[i]] = i }
  phase == "index" {
    if (total_size == "" && match($0, /"total_size"[ \t\r\n]*:[ \t\r\n]*[0-9]+/)) {
      total_size = substr($0, RSTART, RLENGTH)
      sub(/^.*:[ \t\r\n]*/, "", total_size)
    }
    if (!inside) {
      at = index($0, "\"weight_map\"")
      if (!at) next
      $0 = substr($0, at + 12)
      sub(/^[^{]*\{/, "")
      inside = 1
    }
    if (NF >= 5 && $3 ~ /^[ \t\r\n]*:[ \t\r\n]*$/) {
      count[$4]++
      if ($4 in number) place[$2] = number[$4]
    }
    if (index($NF, "}")) { inside = 0; closed = 1 }
    next
  }
  substr($0, 1, 1) == "\001" {
    if (current && tail !~ /^[ \t\r\n]*$/) broken[current] = 1
    split($0, mark, " ")
    current = mark[2] + 0
    size[current] = mark[3] + 0
    fresh = 1
    next
  }
  !current || size[current] < 0 { tail = ""; next }
  {
    tail = $0
    if (fresh) { fresh = 0; if (substr($0, 1, 1) != "{") broken[current] = 1 }
    if ($10 == "data_offsets") ends = $11
    else {
      ends = ""
      for (i = 4; i < NF; i++) if ($i == "data_offsets") ends = $(i + 1)
      if (ends == "") next
    }
    ends = substr(ends, index(ends, ",") + 1) + 0
    tensors[current]++
    if (ends > end[current]) end[current] = ends
    if (place[$2] == current) { matched[current]++; delete place[$2] }
    else {
      if (place[$2] == "") delete place[$2]
      if (!unlisted[current]++) extra[current] = $2
    }
  }
  END {
    for (tensor in place) {
      i = place[tensor]
      if (!missing[i]++ || tensor < lost[i]) lost[i] = tensor
    }
    if (total_size != "") print "T\t" total_size
    if (ENVIRON["indexed"] && !closed) print "E\t" (inside ? "it ends in the middle" : "it holds no weight_map")
    for (shard in count) printf "I\t%d\t%s\n", count[shard], shard
    for (i = 1; i < total; i++) {
      implied = size[i] < 0 || broken[i] ? "-" : sprintf("%.0f", 8 + size[i] + end[i])
      printf "N\t%d\t%s\n", i, name[i]
      printf "S\t%d\t%s\t%d\t%d\t%d\t%d\t%s\t%s\t%.0f\n", i, implied, tensors[i], count[name[i]], missing[i], unlisted[i], lost[i], extra[i], end[i]
    }
  }
'

main() {
  export LC_ALL=C
  newline='
'
  nonce='' name='' images='' ports='' model_dir='' docker='' wanted='' folders=0 state='' addresses=''
  while [ $# -gt 0 ]; do
    value=${1#*=}
    case $1 in
      nonce=*) nonce=$value ;;
      name=*) name=$value ;;
      image=*) images="$images $value" ;;
      port=*) ports="$ports $value" ;;
      model_dir=*) model_dir=$value ;;
      state=*) state=$value ;;
      docker=*) docker="$docker $(quoted "$value")" ;;
      gpus=*) wanted=gpus ;;
      addresses=*) addresses=yes ;;
      folder=*)
        eval "folder_$folders=\$value"
        folders=$((folders + 1))
        ;;
    esac
    shift
  done
  limit=
  # busybox' timeout leaves a watcher behind that keeps the pipe open for up to a second a question
  if timeout --version >/dev/null 2>&1; then limit='timeout 30'; fi
  printf '@@%s begin\n' "$nonce"
  frame path 0 "$PATH"
  set -- track_ports
  [ -z "$docker" ] || set -- "$@" track_docker track_containers
  [ -z "$docker" ] || [ -z "$images" ] || set -- "$@" track_images
  [ -z "$wanted" ] || set -- "$@" track_gpus track_processes track_cuda track_system
  [ -z "$addresses" ] || set -- "$@" track_addresses
  if [ -n "$model_dir" ]; then
    set -- "$@" track_model_dir
    number=0
    while [ "$number" -lt "$folders" ]; do
      set -- "$@" "track_folder $number"
      number=$((number + 1))
    done
  fi
  if [ -n "$state" ] && [ -r "$state/$name/runs.jsonl" ]; then
    frame past 0 "$(tail -n 8 "$state/$name/runs.jsonl")"
  fi
  tracks "$@"
  printf '@@%s end\n' "$nonce"
}

# The function is read whole before it runs, so a script that comes on stdin is not eaten by what it starts.
main "$@" </dev/null

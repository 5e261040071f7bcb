limit=
smi() { # words...: nvidia-smi, also where the PATH of this session lacks it
  for path in nvidia-smi /usr/bin/nvidia-smi /usr/local/bin/nvidia-smi /usr/local/nvidia/bin/nvidia-smi /usr/lib/wsl/lib/nvidia-smi; do
    if command -v "$path" >/dev/null 2>&1; then
      $limit "$path" "$@"
      return
    fi
  done
  return 127
}

# Ask an image once: folder key image docker-words -- words of docker run. The answer is kept by the image's id.
set -u
umask 077
folder=$1 key=$2 image=$3
shift 3
docker=
while [ "$1" != -- ]; do
  docker="$docker '$(printf '%s\n' "$1" | sed "s/'/'\\\\''/g")'"
  shift
done
shift
id=$(eval "$docker image inspect --format '{{.Id}}' \"\$image\"") || exit
file=$folder/probes/$key-${id#sha256:}
if [ -f "$file" ]; then
  cat "$file"
  exit 0
fi
said=$("$@" </dev/null) || exit
case $said in
  '{'*) mkdir -p "$folder/probes" && printf '%s\n' "$said" >"$file.$$" && mv "$file.$$" "$file" ;;
esac
printf '%s\n' "$said"

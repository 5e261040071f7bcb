#!/bin/sh
# What one would write by hand: the same questions on all hosts at once, one fresh ssh a host.
# noop.sh SSH-CONFIG KEX HOST... -- ARGUMENT... (those of questions.sh); KEX is "default" or a key exchange.
# Exit 1: on some host something would have to be done.
config=$1 kex=$2
shift 2
hosts=
while [ "$1" != -- ]; do
  hosts="$hosts $1"
  shift
done
shift
option=
[ "$kex" = default ] || option="-o KexAlgorithms=$kex"

waited=
for host in $hosts; do
  # shellcheck disable=SC2086 # no option is no word
  ssh -F "$config" $option "$host" sh -s -- "$@" <"$(dirname "$0")/questions.sh" >/dev/null &
  waited="$waited $!"
done
status=0
for pid in $waited; do
  wait "$pid" || status=1
done
exit $status

#!/bin/sh
# The programs of tests/preload in a fresh image and beside it.
#
#   preload.sh BYPATH
set -u
here=$(cd "$(dirname "$0")" && pwd)
bypath=$(realpath "$1")
work=$(mktemp -d /dev/shm/bypath-p.XXXXXX) || exit 2
trap 'rm -rf "$work"' EXIT
"$bypath" mkfs "$work/i" --size 256M >/dev/null || exit 1
mkdir "$work/k"
"$here/preload/run.sh" "$work/k" /bp "$bypath" run --mount "$work/i:/bp" --
code=$?
"$here/preload/programs.sh" "$work/k" /bp "$bypath" run --mount "$work/i:/bp" -- || code=1
"$bypath" check "$work/i" >"$work/check" || { echo "FAIL check of the image after the tests"; cat "$work/check"; code=1; }
exit $code

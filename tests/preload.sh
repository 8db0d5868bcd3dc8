#!/bin/sh
# The programs of tests/preload in a fresh image and beside it.
#
#   preload.sh BYPATH
set -u
tests=$(cd "$(dirname "$0")" && pwd)
. "$tests/common.sh"
BYPATH=$1
begin preload p
"$bypath" mkfs "$work/i" --size 256M >/dev/null || exit 1
mkdir "$work/k"
"$tests/preload/run.sh" "$work/k" /bp "$bypath" run --mount "$work/i:/bp" --
code=$?
"$tests/preload/programs.sh" "$work/k" /bp "$bypath" run --mount "$work/i:/bp" -- || code=1
"$bypath" check "$work/i" >"$work/check" || { echo "FAIL check of the image after the tests"; cat "$work/check"; code=1; }
exit $code

#!/bin/sh
# The patched way: what libc does inside itself with files in an image is the same as beside it, and so
# is all that the symbols do; a table that does not fit leaves libc alone, and says so.
#
#   ways.sh BYPATH
set -u
tests=$(cd "$(dirname "$0")" && pwd)
. "$tests/common.sh"
if [ "$(uname -m)" != x86_64 ]; then
    echo "skip the patched way: it is for x86-64"
    exit 0
fi
BYPATH=$1
begin ways w
in_image() { "$bypath" run --no-fuse --mount "$work/i:/bp" -- "$@"; }
"$bypath" mkfs "$work/i" --size 256M >/dev/null && ${CC:-cc} -O1 -Wall -o "$work/inside" "$tests/ways/inside.c" || exit 1

mkdir "$work/k"
"$work/inside" "$work/k" >"$work/kernel" 2>&1
BYPATH_WAYS=patched in_image "$work/inside" /bp >"$work/patched" 2>&1
diff "$work/kernel" "$work/patched"
verdict "patched way: libc's own calls are seen" $?
in_image "$work/inside" /bp >"$work/symbols" 2>&1
! cmp -s "$work/kernel" "$work/symbols"
verdict "patched way: the symbols alone do not see them (else this test shows nothing)" $?

# Another libc's table, and none: libc stays as it is, a line says why, the program runs.
head -c 100 /dev/zero >"$work/sites"
table=$(BYPATH_WAYS=patched BYPATH_SITES="$work/sites" in_image sh -c 'echo fine >/bp/f; cat /bp/f' 2>"$work/said")
[ "$table" = fine ]
verdict "patched way: a useless table harms nothing" $?
BYPATH_WAYS=nonsense in_image true 2>"$work/said"
[ $? -ne 0 ] && grep -q 'BYPATH_WAYS=nonsense: it can be symbols or patched' "$work/said"
verdict "patched way: a way that there is not is refused" $?

BYPATH_WAYS=patched
export BYPATH_WAYS
"$tests/preload/run.sh" "$work/k" /bp "$bypath" run --no-fuse --mount "$work/i:/bp" -- 2>/dev/null | sed 's/^ok   /ok   patched way: /; s/^FAIL /FAIL patched way: /' >"$work/report"
cat "$work/report"
! grep -q '^FAIL' "$work/report"
verdict "patched way: the programs of tests/preload" $?
"$bypath" check "$work/i" >"$work/check" || { cat "$work/check"; false; }
verdict "patched way: the image checks clean" $?
exit $failed

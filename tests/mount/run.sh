#!/bin/bash
# The kernel's way in: an image mounted, alone and together with the short way.
#
#   run.sh [NAME…]              (names of scripts beside this one, without .sh; default: all)
#   BYPATH=target/release/bypath
#
# Each script is sourced by a shell of its own with $bypath, $work (a directory), $image
# (a fresh image of 512 MiB) and $mnt (an empty directory), and prints a line `ok   …` or
# `FAIL …` for each thing that it looks at. Afterwards no mount and no server may be left,
# and the image must check clean.
set -u
export LC_ALL=C
here=$(cd "$(dirname "$0")" && pwd)
tests=$(dirname "$here")
. "$tests/common.sh"
if [ ! -c /dev/fuse ] || [ "$(id -u)" -ne 0 ]; then
    echo "skip mount: no /dev/fuse here, or not root: the kernel's way in is NOT tested"
    exit 0
fi
begin mount m
for_all

nobody_has_it() { ! pgrep -f "$work/i" >/dev/null; }
one() { # NAME
    local begun=$EPOCHREALTIME out code
    rm -f "$work/i"
    mkdir -p "$work/m"
    "$bypath" mkfs "$work/i" --size 512M >/dev/null || { echo "FAIL $1: no image"; failed=1; return; }
    out=$(tests=$tests bypath=$bypath work=$work image=$work/i mnt=$work/m here=$here timeout -k 5 "${SECONDS_MAX:-600}" bash -c '
        . "$tests/common.sh"
        ok() { echo "ok   $*"; }
        fail() { echo "FAIL $*"; }
        # same WHAT GOT WANTED
        same() { [ "$2" = "$3" ] && ok "$1" || fail "$1: $2, not $3"; }
        # served [OPTION…]: starts $server, a server in the foreground; when it returns the mount is there, or it fails
        served() {
            "$bypath" mount --foreground "$@" "$image" "$mnt" &
            server=$!
            # One question only: a mount whose server was killed may still be there.
            until [ "$(stat -f -c %T "$mnt" 2>/dev/null)" = fuseblk ]; do
                kill -0 $server 2>/dev/null || return 1
                sleep 0.01
            done
        }
        # short COMMAND…: on the short way alone, at the mount point
        short() { "$bypath" run --no-fuse --mount "$image:$mnt" -- "$@"; }
        . "$here/'"$1"'.sh"' 2>&1)
    code=$?
    echo "$out" | sed "s/^\(ok   \|FAIL \|skip \)/\1$1: /"
    [ $code -eq 0 ] || { echo "FAIL $1: the script ended with $code"; failed=1; }
    # A server whose mount was taken away needs a moment.
    wait_until nobody_has_it
    if grep -q "$work/" /proc/mounts; then echo "FAIL $1: left a mount"; umount -l "$work"/m*; failed=1; fi
    if ! nobody_has_it; then echo "FAIL $1: left a process"; failed=1; fi
    "$bypath" check "$work/i" >"$work/check" 2>&1 || { echo "FAIL $1: check: $(head -1 "$work/check")"; failed=1; }
    case $out in *"FAIL "*) failed=1 ;; esac
    echo "     $1: $(((${EPOCHREALTIME/./} - ${begun/./}) / 1000)) ms"
}

if [ $# -eq 0 ]; then
    set -- $(cd "$here" && ls -- *.sh | sed 's/\.sh$//' | grep -vx run)
fi
for name; do one "$name"; done
[ $failed -eq 0 ]

#!/bin/bash
# Small programs that must do the same on an image as on tmpfs, and scripts that show that nobody is harmed.
#
#   run.sh [CASE…]              (names of files beside this one, with or without their ending; default: all)
#   BYPATH=target/release/bypath  KEEP=1 leaves the work directory  WAYS='short host' takes these alone
#   WITHOUT=patched leaves that way out, but for cases with a line `always: patched`
#
# A case is a NAME.c, NAME.py or NAME.sh whose first lines say what it shows and how it is run, one of
#   ways: short both patched kernel host cached fuse
#       On tmpfs, and then by each of these ways, in an empty directory of its own. What it prints, its exit
#       code and the tree that it leaves must be the same; the image must check clean.
#           short    bypath run --no-fuse              both  bypath run, with a kernel mount beside
#           patched  short, with system calls patched  kernel  bypath mount alone
#           host     a directory of the kernel's       fuse  the same behind bindfs
#           cached   the same behind a cache image; what is below in the end must be the same too
#           cached-fuse  the same with bindfs behind it
#   own
#       A script that makes what it needs, with $bypath, in an empty working directory on tmpfs. It must end with 0.
#       A line `figure: …` of it is shown.
# and, if it wants, `needs: PROGRAM…` (left out, loudly, where one is missing), `seconds: N` (60), `flags: …` (of the C
# compiler), `size: …` of the image (256M), `mode: …` of its file (600), and `options: …` of `bypath run`.
# Each way has a mount namespace and a /dev/shm of its own, so that a hostile case disturbs nobody.
set -u
export LC_ALL=C
here=$(cd "$(dirname "$0")" && pwd)
tests=$(dirname "$here")
. "$tests/common.sh"
if [ "$(id -u)" -ne 0 ] || ! unshare -m true 2>/dev/null; then
    echo "skip conformance: not root, or no mount namespaces here: these cases are NOT tested"
    exit 0
fi
begin conformance c "${TMPDIR:-/tmp}"
chmod 755 "$work"

# said WORD SOURCE [DEFAULT]: what a case says of itself.
said() {
    local text
    text=$(sed -n "1,15s/^\(#\|\/\/\) $1: *//p" "$2" | head -1)
    echo "${text:-${3:-}}"
}

# apart COMMAND…: in a mount namespace of its own, with a /dev/shm and a place for mounts that are empty.
apart() {
    mkdir -p "$work/here"
    unshare -m --propagation private bash -c '
        mount -t tmpfs -o size=4G shm /dev/shm && mount -t tmpfs -o size=4G here "$1" && shift && exec "$@"' bash "$work/here" "$@"
}

# inside DIR SECONDS COMMAND…: the case itself, and the tree that it leaves.
cat >"$work/inside" <<'S'
umask 022
dir=$1 seconds=$2
shift 2
mkdir "$dir/w" && cd "$dir/w" || exit 99
export HOME=$dir/w TMPDIR=$dir/w
timeout -k 5 "$seconds" "$@"
echo "exit code $?"
bash "$work/tree" .
S
cat >"$work/tree" <<'S'
cd "$1" && find . -mindepth 1 -printf '%P %y %m %n %U %G %l' \( -type f -printf ' %s\n' -o -printf '\n' \) | sort
S

# by WAY SOURCE COMMAND…: in a place of its own; the image and what lies beside it are in $work/here.
by() {
    local way=$1 source=$2 at=$work/here/m image=$work/here/i seconds options
    shift 2
    seconds=$(said seconds "$source" 60)
    options=$(said options "$source")
    set -- bash "$work/inside" "$at" "$seconds" "$@"
    mkdir "$at"
    case $way in
    tmpfs) "$@" && bash "$work/tree" "$at/w" >"$work/tree.tmpfs" ;;
    host) mkdir "$work/here/d" && "$bypath" run $options --mount "host:$work/here/d:$at" -- "$@" ;;
    cached)
        mkdir "$work/here/d"
        "$bypath" run $options --mount "host:$work/here/d:$at,cache=$image:$(said size "$source" 256M)" -- "$@"
        wait_until not_marked "$work/here/d"
        bash "$work/tree" "$work/here/d" | sed -n 's/^w\///p' | diff -a "$work/tree.tmpfs" - || echo 'the directory below is another'
        "$bypath" check "$image" >"$work/check" 2>&1 || { echo 'the image is damaged:' && tail -3 "$work/check"; }
        ;;
    cached-fuse)
        mkdir "$work/here/d"
        "$bypath" run $options --mount "fuse:bindfs -f $work/here/d @:$at,cache=$image:$(said size "$source" 256M)" -- "$@"
        bash "$work/tree" "$work/here/d" | sed -n 's/^w\///p' | diff -a "$work/tree.tmpfs" - || echo 'the directory below is another'
        "$bypath" check "$image" >"$work/check" 2>&1 || { echo 'the image is damaged:' && tail -3 "$work/check"; }
        ;;
    fuse) mkdir "$work/here/d" && "$bypath" run $options --mount "fuse:bindfs -f $work/here/d @:$at" -- "$@" ;;
    *)
        "$bypath" mkfs "$image" --size "$(said size "$source" 256M)" >/dev/null && chmod "$(said mode "$source" 600)" "$image" || return
        case $way in
        short) "$bypath" run $options --no-fuse --mount "$image:$at" -- "$@" ;;
        patched) BYPATH_WAYS=patched "$bypath" run $options --no-fuse --mount "$image:$at" -- "$@" ;;
        both) "$bypath" run $options --mount "$image:$at" -- "$@" ;;
        kernel) "$bypath" mount "$image" "$at" && "$@" && "$bypath" umount "$at" ;;
        *) echo "no way $way" ;;
        esac
        wait_until not_mounted "$at"
        "$bypath" check "$image" >"$work/check" 2>&1 || { echo 'the image is damaged:' && tail -3 "$work/check"; }
        ;;
    esac
}
not_mounted() { ! grep -q " $1 " /proc/mounts; }
not_marked() { [ ! -e "$1/.bypath-cache" ]; }
export -f by said wait_until not_mounted not_marked
export bypath work tests BYPATH=$bypath

# one NAME: all ways of a case.
one() {
    local name=$1 source command way ways
    source=$(ls "$here/$name".[cps]* 2>/dev/null | head -1)
    [ -n "$source" ] || { verdict "$name: there is no such case" 1 && return; }
    for way in $(said needs "$source"); do
        command -v "$way" >/dev/null || { echo "skip $name: $way is not here: NOT tested" && return; }
    done
    case $source in
    *.c)
        command=$work/bin/$name
        mkdir -p "$work/bin"
        # shellcheck disable=SC2046
        cc -O1 -w -o "$command" "$source" $(said flags "$source") -lpthread || { verdict "$name: it does not compile" 1 && return; }
        ;;
    *.py) command="python3 $source" ;;
    *.sh) command="bash $source" ;;
    esac
    if grep -qE '^(#|//) own$' "$source"; then
        apart bash -c 'mkdir "$work/here/w" && cd "$work/here/w" && exec timeout -k 5 "$@"' bash "$(said seconds "$source" 60)" $command >"$work/out" 2>&1 </dev/null
        way=$?
        [ $way -eq 0 ] || tail -20 "$work/out"
        if [ $way -eq 0 ] && grep -q '^skip' "$work/out"; then
            echo "skip $name: $(sed -n 's/^skip:* *//p' "$work/out" | head -1): NOT tested"
            return
        fi
        verdict "$name" $way
        sed -n 's/^figure: /     /p' "$work/out"
        return
    fi
    ways=$(said ways "$source")
    [ -n "$ways" ] || { verdict "$name: it says no ways" 1 && return; }
    apart bash -c 'by "$@"' bash tmpfs "$source" $command >"$work/out.tmpfs" 2>&1 </dev/null
    for way in ${WAYS:-$ways}; do
        [ "$way" != "${WITHOUT:-}" ] || [ "$way" = "$(said always "$source")" ] || continue
        case $way in
        fuse) command -v bindfs >/dev/null || { echo "skip $name $way: bindfs is not here: NOT tested" && continue; } ;;
        both | kernel) [ -c /dev/fuse ] || { echo "skip $name $way: no /dev/fuse here: NOT tested" && continue; } ;;
        esac
        apart bash -c 'by "$@"' bash "$way" "$source" $command >"$work/out.$way" 2>&1 </dev/null
        diff -a "$work/out.tmpfs" "$work/out.$way" >"$work/diff"
        code=$?
        [ $code -eq 0 ] || head -30 "$work/diff"
        verdict "$name $way" $code
    done
}

if [ $# -eq 0 ]; then
    set -- $(cd "$here" && ls -- *.c *.py *.sh 2>/dev/null | grep -vxE "(run|own).sh")
fi
for name; do one "${name%.*}"; done
[ $failed -eq 0 ]

#!/bin/bash
# Real programs in an image and on tmpfs: each script beside this one runs twice, in
# a fresh directory of tmpfs and in a fresh image under `bypath run`. Exit code,
# output, and what is left behind must be the same; the image must check clean.
#
#   run.sh [NAME…]              (names of scripts, without .sh; default: all but those "by name")
#   BYPATH=target/release/bypath   KEEP=1 leaves the work directory
#   WAY=run (default): `bypath run --no-fuse`, the short way alone
#   WAY=both: `bypath run` at a directory, so that there is one beside the short way
#   WAY=mount: `bypath mount`, and programs as they are
#   BYPATH_WAYS=patched             the patched way
#   SOURCE='host:%'                 another mount in the image's place; % is a fresh directory
#   OPTIONS=',cache=%.cache:1G'     its options; with a cache what is below in the end is compared too
#
# The first comment lines of a script may say
#   # needs: PROGRAM|PATTERN…   left out, loudly, where one is missing
#   # way: kernel               not for WAY=run (static programs, io_uring)
#   # way: mount                only for WAY=mount
#   # by name: REASON           run only when named
#   # root: yes                 left out, loudly, for others
#   # as: NUMBER                where root runs this: as that user, whose image and directories they are then
#   # ignore: REGEX             paths whose contents hold times or inode numbers
#   # seconds: N                time limit (default 180)
set -u
export LC_ALL=C
here=$(cd "$(dirname "$0")" && pwd)
tests=$(dirname "$here")
. "$tests/common.sh"
begin programs t
for_all
# As long as the other, so that files which hold paths are equally long.
point=${POINT:-$work/b}
# What .ci/tools got from registries.
PATH=$PATH:$(realpath "$tests/..")/target/tools/uv/bin
passed=0 left_out=0 other_ways=0
way=${WAY:-run}
source=$work/i
[ -z "${SOURCE:-}" ] || source=${SOURCE//%/$work/i}
options=${OPTIONS:-}
options=${options//%/$work/i}
case $way in
    run) inside=("$bypath" run --no-fuse --mount "$source:$point$options" --) ;;
    both) inside=("$bypath" run --mount "$work/i:$point" --) && mkdir -p "$point" ;;
    mount) inside=() && mkdir -p "$point" ;;
    *) echo "FAIL programs: WAY=$way: run, both or mount" && exit 2 ;;
esac
if [ "$way" != run ] && { [ ! -c /dev/fuse ] || [ "$(id -u)" -ne 0 ] && ! type -P fusermount3 >/dev/null; }; then
    echo "skip programs, WAY=$way: no /dev/fuse here, or neither root nor fusermount3: NOT tested"
    exit 0
fi

# What both sides run: makes a fresh directory, goes there, runs the script.
cat >"$work/side.sh" <<'SIDE'
dir=$1 script=$2 seconds=$3
mkdir -p "$dir/tmp" && cd "$dir" || exit 99
export HOME=$dir TMPDIR=$dir/tmp
shell=$(sed -n '1s/^#!//p' "$script")
exec timeout -k 5 "$seconds" $shell "$script"
SIDE
# What is left behind: everything but times.
cat >"$work/list.sh" <<'LIST'
cd "$1" || exit 99
find . -printf '%P %y %m %n %U %G %l' \( -type f -printf ' %s\n' -o -printf '\n' \) | sort
find . -type f | grep -Ev "$2" | sort | while IFS= read -r file; do cksum "$file"; done
LIST

header() { sed -n "s/^# $1: *//p" "$2" | head -1; }
clean="env -i ${BYPATH_WAYS:+BYPATH_WAYS=$BYPATH_WAYS} ${BYPATH_PRELOAD:+BYPATH_PRELOAD=$BYPATH_PRELOAD} ${BYPATH_DAEMON:+BYPATH_DAEMON=$BYPATH_DAEMON} PATH=$PATH LC_ALL=C TZ=UTC PYTHONDONTWRITEBYTECODE=1 PYTHONHASHSEED=0"

# What a script has started in the background and ended may need a moment to be gone.
leave() {
    for _ in $(seq 100); do
        "$bypath" umount "$point" 2>/dev/null && return
        sleep 0.1
    done
    "$bypath" umount "$point"
}

one() { # NAME
    local script=$here/$1.sh name=$1 needed ignore seconds begun side user clean=$clean
    [ -f "$script" ] || { echo "FAIL $name: there is no such script" && failed=$((failed + 1)) && return; }
    case $(header way "$script")-$way in
        kernel-run | mount-run | mount-both) other_ways=$((other_ways + 1)) && return ;;
    esac
    for needed in $(header needs "$script"); do
        if [ ! -e "$needed" ] && ! command -v "$needed" >/dev/null; then
            echo "skip $name: $needed is not installed: LEFT OUT, not passed"
            left_out=$((left_out + 1))
            return
        fi
    done
    if [ -n "$(header root "$script")" ] && [ "$(id -u)" -ne 0 ]; then
        echo "skip $name: it needs root: LEFT OUT, not passed"
        left_out=$((left_out + 1))
        return
    fi
    ignore=$(header ignore "$script")
    seconds=$(header seconds "$script")
    begun=$EPOCHREALTIME
    rm -rf "$work/k" "$work/i" "$work/i.cache"
    if [ -n "${SOURCE:-}" ]; then
        mkdir "$work/i"
    elif ! "$bypath" mkfs "$work/i" --size 512M >/dev/null; then
        echo "FAIL $name: no image could be made"
        failed=$((failed + 1))
        return
    fi
    user=$(header as "$script")
    if [ -n "$user" ] && [ "$(id -u)" -eq 0 ]; then
        clean="setpriv --reuid $user --regid $user --clear-groups $clean"
        mkdir -p "$work/k" && chown "$user:$user" "$work/k" "$work/i"
        "$bypath" run --no-fuse --mount "$source:$point$options" -- chown "$user:$user" "$point"
        [ ! -e "$work/i.cache" ] || chown "$user:$user" "$work/i.cache"
    fi
    $clean sh "$work/side.sh" "$work/k/test" "$script" "${seconds:-180}" >"$work/k.out" 2>&1 </dev/null
    echo "exit $?" >>"$work/k.out"
    [ "$way" != mount ] || "$bypath" mount "$work/i" "$point" || what='no mount'
    $clean "${inside[@]}" sh "$work/side.sh" "$point/test" "$script" "${seconds:-180}" >"$work/b.out" 2>&1 </dev/null
    echo "exit $?" >>"$work/b.out"
    $clean sh "$work/list.sh" "$work/k/test" "${ignore:-^$}" >"$work/k.list" 2>&1
    $clean "${inside[@]}" sh "$work/list.sh" "$point/test" "${ignore:-^$}" >"$work/b.list" 2>&1
    [ "$way" != mount ] || leave || what='still in use afterwards'
    sed -i "s|$work/k/test|@|g" "$work/k.out" "$work/k.list"
    # What a session says once: that a program's own system calls do not see the mount.
    sed -i "s|$point/test|@|g; /^bypath: .*; this is said once\$/d" "$work/b.out" "$work/b.list"
    case $options in *,cache=*)
        "$bypath" check "$work/i.cache" >"$work/check" 2>&1 || what="check: $(head -1 "$work/check")"
        $clean sh "$work/list.sh" "$work/i/test" "${ignore:-^$}" 2>&1 | sed "s|$point/test|@|g" | cmp -s - "$work/b.list" || what='the directory below differs'
        ;;
    esac
    [ -n "${SOURCE:-}" ] || "$bypath" check "$work/i" >"$work/check" 2>&1 || what="check: $(head -1 "$work/check")"
    cmp -s "$work/k.list" "$work/b.list" || what='what is left behind differs'
    cmp -s "$work/k.out" "$work/b.out" || what='output differs'
    case $(tail -qn 1 "$work/k.out" "$work/b.out") in *'exit 124'* | *'exit 137'*) what='over its time limit' ;; esac
    if [ -z "$what" ]; then
        passed=$((passed + 1))
        printf 'ok   %-12s %4d lines, %4d files, %d ms\n' "$name" "$(wc -l <"$work/k.out")" "$(wc -l <"$work/k.list")" \
            "$(((${EPOCHREALTIME/./} - ${begun/./}) / 1000))"
        return
    fi
    failed=$((failed + 1))
    echo "FAIL $name: $what"
    for side in out list; do
        diff "$work/k.$side" "$work/b.$side" | head "-${LINES_MAX:-12}" | sed 's/^/     /'
    done
    [ -z "${KEEP:-}" ] || { mkdir -p "$work/failed/$name" && cp "$work"/?.out "$work"/?.list "$work/failed/$name"; }
}

if [ $# -eq 0 ]; then
    set -- $(cd "$here" && grep -L '^# by name:' -- *.sh | sed 's/\.sh$//' | grep -vx run)
fi
for name; do
    what=
    one "$name"
done
echo "programs, WAY=$way: $passed passed, $failed failed, $left_out left out, $other_ways for another way only"
[ "$failed" -eq 0 ]

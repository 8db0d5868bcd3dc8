#!/bin/bash
# Other projects' own suites: what passes on tmpfs passes on an image, but for the tests in SUITE.known, each with its reason.
#
#   run.sh [SUITE…]       (ltp, coreutils, cpython; default: all)   WAYS='short both'   KEEP=1 leaves the work directory
#   BYPATH=target/release/bypath
#   SOURCES=DIR           DIR/SUITE is the built suite, or becomes it; default: a directory of its own each time
#
# Slow (minutes each), so not a part of CI. A suite's script gets its sources where that is allowed, else it is left out, loudly.
# It has two functions: `build DIR`, which leaves the built suite there, and `verdicts BUILT PLACE OUT`, which runs it in the
# directory PLACE and writes lines `NAME VERDICT`; tests that pass have `pass`.
set -u
export LC_ALL=C
here=$(cd "$(dirname "$0")" && pwd)
tests=$(dirname "$here")
if [ "${1:-}" = --inside ]; then
    # run.sh --inside SUITE BUILT PLACE OUT
    . "$here/$2.sh"
    mkdir -p "$4" && chmod 1777 "$4" && verdicts "$3" "$4" "$5"
    exit
fi
. "$tests/common.sh"
if [ "$(id -u)" -ne 0 ]; then
    echo 'skip suites: they need root: NOT tested'
    exit 0
fi
begin suites u "${TMPDIR:-/tmp}"
chmod 755 "$work"
sources=$(realpath -m "${SOURCES:-$work/sources}")
mkdir -p "$sources" "$work/point"

# apart COMMAND…: in a mount namespace of its own, with a private /dev/shm.
apart() {
    unshare -m --propagation private sh -c 'mount -t tmpfs -o size=6G,mode=1777 shm /dev/shm && exec "$@"' sh "$@"
}

# compare SUITE WAY: what passes on tmpfs and not here, and is not known.
compare() {
    local suite=$1 way=$2 wanted held known
    sed -n "s/^$way: //p; /^[a-z]*: /!p" "$here/$suite.known" | sed 's/ *#.*//' | grep . | sort -u >"$work/known"
    sed -n 's/ pass$//p' "$work/$suite.tmpfs" | sort -u >"$work/wanted"
    sed -n 's/ pass$//p' "$work/$suite.$way" | sort -u >"$work/held"
    comm -23 "$work/wanted" "$work/held" >"$work/differ"
    wanted=$(wc -l <"$work/wanted") held=$(comm -12 "$work/wanted" "$work/held" | wc -l)
    known=$(comm -12 "$work/differ" "$work/known" | wc -l)
    comm -23 "$work/differ" "$work/known" >"$work/new"
    if [ -s "$work/new" ] || [ "$wanted" -eq 0 ]; then
        failed=$((failed + 1))
        echo "FAIL suites: $suite, $way: of $wanted tests that pass on tmpfs these do not, and are not known:"
        grep -wFf "$work/new" "$work/$suite.$way" | sed 's/^/     /' | head -40
        return
    fi
    echo "ok   suites: $suite, $way: $held of $wanted tests that pass on tmpfs, $known known not to"
    comm -23 "$work/known" "$work/differ" | sed "s/^/     passes now, $way: /"
}

one() { # SUITE
    local suite=$1 way options
    . "$here/$suite.sh"
    if ! build "$sources/$suite" >"$work/$suite.build" 2>&1; then
        tail -3 "$work/$suite.build"
        echo "skip suites: $suite could not be had or built: NOT tested"
        return
    fi
    apart "$here/run.sh" --inside "$suite" "$sources/$suite" /dev/shm/place "$work/$suite.tmpfs"
    for way in ${WAYS:-short both}; do
        case $way in short) options=--no-fuse ;; both) options= ;; *) echo "FAIL suites: no way $way" && exit 2 ;; esac
        # shellcheck disable=SC2086
        apart sh -c 'bypath=$1 && shift && "$bypath" mkfs /dev/shm/image --size 3G >/dev/null && chmod 666 /dev/shm/image &&
            "$bypath" run "$@" && "$bypath" check /dev/shm/image' sh "$bypath" $options \
            --mount "/dev/shm/image:$work/point" -- "$here/run.sh" --inside "$suite" "$sources/$suite" "$work/point/place" \
            "$work/$suite.$way" >"$work/$suite.$way.log" 2>&1
        grep -q ': clean;' "$work/$suite.$way.log" || {
            tail -3 "$work/$suite.$way.log"
            echo "FAIL suites: $suite, $way: the image is not clean"
            failed=$((failed + 1))
        }
        compare "$suite" "$way"
    done
}

for suite in ${*:-ltp coreutils cpython}; do one "$suite"; done
[ "$failed" -eq 0 ]

#!/bin/sh
# Compiles the programs beside this script and runs each in two fresh directories:
# one of the kernel's (plain), one in a mount (through the preload library). The
# reports must be the same.
#
#   run.sh KERNEL_DIR MOUNT_DIR [COMMAND…]
#
# COMMAND runs a program with the library (`bypath run --mount IMG:/bp --`); without
# one, LD_PRELOAD must be what `BYPATH_PRELOAD` names. Names of tests in TESTS= run
# only these.
set -u
here=$(cd "$(dirname "$0")" && pwd)
plain=$1 mount=$2
shift 2
work=$(mktemp -d "${TMPDIR:-/tmp}/bypath-preload.XXXXXX")
trap 'rm -rf "$work" "$plain/bypath-test-$$"' EXIT
failed=0
for source in "$here"/*.c "$here"/*.cc; do
    name=$(basename "$source")
    name=${name%.*}
    case " ${TESTS:-$name} " in *" $name "*) ;; *) continue ;; esac
    case $source in
    *.cc) compile="${CXX:-c++} -std=c++17" ;;
    *) compile=${CC:-cc} ;;
    esac
    if ! command -v "${compile%% *}" >/dev/null 2>&1; then
        echo "skip preload $name: no ${compile%% *} here"
        continue
    fi
    # -O1 -D_FORTIFY_SOURCE=2: the fortified names are tested as well.
    if ! $compile -g -O1 -D_FORTIFY_SOURCE=2 -w -pthread -o "$work/$name" "$source"; then
        echo "FAIL $name: does not compile"
        failed=1
        continue
    fi
    rm -rf "$plain/bypath-test-$$"
    mkdir -p "$plain/bypath-test-$$/$name"
    # As deep as the other one, so that both see the same numbers of components.
    "$work/$name" "$plain/bypath-test-$$/$name" "$work/$name.kernel" >"$work/$name.out" 2>&1
    echo "exit $?" >>"$work/$name.kernel"
    if [ $# -gt 0 ]; then
        "$@" sh -c 'mkdir -p "$2" && exec "$1" "$2" "$3"' sh "$work/$name" "$mount/bypath-test-$$/$name" "$work/$name.mount" >"$work/$name.out" 2>&1
    else
        LD_PRELOAD=$BYPATH_PRELOAD "$work/$name" "$mount" "$work/$name.mount" >"$work/$name.out" 2>&1
    fi
    echo "exit $?" >>"$work/$name.mount"
    if cmp -s "$work/$name.kernel" "$work/$name.mount"; then
        echo "ok   $name ($(wc -l <"$work/$name.kernel") lines)"
    else
        echo "FAIL $name: kernel (<) and mount (>) differ"
        diff "$work/$name.kernel" "$work/$name.mount" | head -${LINES_MAX:-40}
        sed 's/^/     /' "$work/$name.out" | head -20
        failed=1
    fi
done
exit $failed

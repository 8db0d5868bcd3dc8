#!/bin/sh
# Runs the scripts in programs/ in two fresh directories: one of the kernel's, one
# in a mount. What they print and leave behind must be the same.
#
#   programs.sh KERNEL_DIR MOUNT_DIR COMMAND…
#
# COMMAND runs a program in the namespace (`bypath run --mount IMG:/bp --`). Each
# script is run by the shell named in its first line, in an empty directory that
# is its $1 and its working directory. TESTS="bash git" runs only those. A script
# whose programs are missing says "skip".
set -u
here=$(cd "$(dirname "$0")" && pwd)
plain=$1/bypath-programs-$$ mount=$2/bypath-programs-$$
shift 2
work=$(mktemp -d "${TMPDIR:-/tmp}/bypath-programs.XXXXXX")
trap 'rm -rf "$work" "$plain"' EXIT
export LC_ALL=C TZ=UTC GIT_CONFIG_NOSYSTEM=1 HOME=/nonexistent
failed=0
for script in "$here"/programs/*.sh; do
    name=$(basename "$script" .sh)
    case " ${TESTS:-$name} " in *" $name "*) ;; *) continue ;; esac
    shell=$(sed -n '1s/^#!.*\///p' "$script")
    # The same length of path on both sides, as some programs show columns of it.
    inner='umask 022; mkdir -p "$2" && cd "$2" && "$1" "$3" "$2" 2>&1; echo "exit $?"'
    sh -c "$inner" sh "$shell" "$plain/$name" "$script" 2>&1 | sed "s|$plain|BASE|g" >"$work/$name.kernel"
    timeout -k 5 ${LIMIT:-120} "$@" sh -c "$inner" sh "$shell" "$mount/$name" "$script" 2>&1 | sed "s|$mount|BASE|g" >"$work/$name.mount"
    if grep -q '^skip' "$work/$name.kernel"; then
        echo "skip $name: $(grep '^skip' "$work/$name.kernel")"
    elif cmp -s "$work/$name.kernel" "$work/$name.mount"; then
        echo "ok   $name ($(wc -l <"$work/$name.kernel") lines)"
    else
        echo "FAIL $name: kernel (<) and mount (>) differ"
        diff "$work/$name.kernel" "$work/$name.mount" | head -${LINES_MAX:-30}
        failed=1
    fi
    "$@" rm -rf "$mount"
done
exit $failed

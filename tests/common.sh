# What the test scripts share. To be sourced with $tests, this directory; for any POSIX shell.
failed=0

# begin NAME LETTER [PARENT]: sets $bypath (of $BYPATH) and $work, a directory in PARENT (default /dev/shm, or $SHM) that
# goes when the shell ends, with the mounts in it; KEEP=1 leaves it and names it.
begin() {
    bypath=$(realpath -q "${BYPATH:-$tests/../target/release/bypath}")
    if [ ! -x "$bypath" ]; then
        echo "FAIL $1: ${BYPATH:-target/release/bypath} is not there; run make first"
        exit 2
    fi
    work=$(mktemp -d "${3:-${SHM:-/dev/shm}}/bypath-$2.XXXXXX") || exit 2
    trap 'end' EXIT
}
end() {
    if [ -n "${KEEP:-}" ]; then
        echo "work directory: $work"
        return
    fi
    awk -v work="$work/" 'index($2, work) == 1 { print $2 }' /proc/mounts | while read -r point; do umount -l "$point"; done
    rm -rf --one-file-system "$work"
}

# verdict NAME CODE: the line that CI counts.
verdict() {
    if [ "$2" -eq 0 ]; then echo "ok   $1"; else
        echo "FAIL $1"
        failed=1
    fi
}

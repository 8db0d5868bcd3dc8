# What the test scripts share. To be sourced with $tests, this directory; for any POSIX shell.
failed=0
# Whatever the caller's is: other users have a part in the tests.
umask 022

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
# for_all: others may look into $work, and reach the programs: copies, where they may not look into where those lie.
for_all() {
    chmod 755 "$work"
    [ "$(id -u)" -eq 0 ] && ! setpriv --reuid 65534 --regid 65534 --clear-groups test -x "$bypath" || return 0
    mkdir "$work/programs" && cp "${bypath%/*}"/libbypath*.so "$bypath" "$work/programs" || exit 2
    [ ! -x "${bypath%/*}/testkit" ] || cp "${bypath%/*}/testkit" "$work/programs"
    chmod 755 "$work/programs"/*
    bypath=$work/programs/bypath
}
# wait_until COMMAND…: until it succeeds, a minute at most.
wait_until() {
    for _ in $(seq 1200); do
        "$@" && return
        sleep 0.05
    done
    return 1
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

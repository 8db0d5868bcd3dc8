#!/bin/bash
# Without /dev/shm the shared cache lies in $XDG_RUNTIME_DIR, $TMPDIR or /tmp, in a user namespace of an ordinary user; programs
# with another environment, and those that have a /dev/shm, find it by the image.
# own
# seconds: 90
. "$(dirname "$0")/own.sh"
for_all
# A /dev without shm.
mkdir dev run tmp && chmod 777 . run tmp
for node in null zero full random urandom; do >dev/$node; done
export bypath work
cat >inside <<'S'
# inside COMMAND…: in a user and mount namespace, with that /dev.
exec unshare -Urm bash -c '
    for node in null zero full random urandom; do mount --bind /dev/$node "$work/dev/$node" || exit 99; done
    mount --rbind "$work/dev" /dev && [ ! -e /dev/shm ] && exec "$@"' bash "$@"
S
as_user() { if [ "$(id -u)" -eq 0 ]; then setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; else "$@"; fi; }
bare() { as_user bash inside env -u BYPATH_SEGMENT_DIR -u XDG_RUNTIME_DIR -u TMPDIR "$@"; }
say() { # NAME COMMAND…
    "${@:2}" >out 2>&1
    code=$?
    [ $code -eq 0 ] || cat out
    verdict "no_shm: $1" $code
}
if ! bare true 2>out; then
    echo "skip: no user namespaces with mounts here ($(tail -1 out))"
    exit 0
fi
image=$work/tmp/i
as_user "$bypath" mkfs "$image" --size 64M >/dev/null
say 'it is not there' bare test ! -e /dev/shm
# Names of shared caches: 16 digits.
caches() { find "$1" -maxdepth 1 -name 'bypath-????????????????' | wc -l; }
say 'in TMPDIR' bare TMPDIR="$work/tmp" "$bypath" run --no-fuse -m "$image:/bp" -- sh -ec 'mkdir /bp/d; seq 1000 >/bp/d/f; tail -1 /bp/d/f | grep -qx 1000; [ "$(ls "$work/tmp" | grep -cE "^bypath-[0-9a-f]{16}$")" -eq 1 ]; env | grep -q ^BYPATH_SEGMENT_DIR='
mkfifo -m 666 go
bare XDG_RUNTIME_DIR="$work/run" TMPDIR="$work/tmp" "$bypath" run --no-fuse -m "$image:/bp" -- bash -c '
    echo one >/bp/d/live; exec 3</bp/d/live; >"$work/ready"; read -r _ <"$work/go"; cat /bp/d/more' >session 2>&1 &
session=$!
wait_until test -e ready
say 'another environment finds it' bare "$bypath" run --no-fuse -m "$image:/bp" -- sh -ec 'cat /bp/d/live; echo more >/bp/d/more'
say 'users are seen' bare sh -c '"$0" info "$1" | grep -E "^users +[1-9]"' "$bypath" "$image"
say 'a program with a /dev/shm finds it' as_user "$bypath" cat "$image:/d/more"
if [ -e "${bypath%/*}/libbypath.so" ] && command -v python3 >/dev/null; then
    say 'the C library finds it' bare PYTHONPATH="$tests/../python" PYTHONDONTWRITEBYTECODE=1 BYPATH_LIBRARY="${bypath%/*}/libbypath.so" \
        python3 -c 'import bypath, sys; assert bypath.image(sys.argv[1]).read_text("/d/more") == "more\n"' "$image"
fi
say 'doctor names the directory' bare TMPDIR="$work/tmp" sh -c '"$0" doctor | grep -q "$work/tmp"' "$bypath"
[ "$(caches run)" -le 1 ] && [ "$(($(caches run) + $(caches tmp)))" -eq 1 ]
verdict "no_shm: one shared cache ($(caches run) and $(caches tmp))" $?
echo >go
wait $session
[ "$(cat session)" = more ]
verdict 'no_shm: the session saw what others made' $?
say 'the image is sound' as_user "$bypath" check "$image"
exit $failed

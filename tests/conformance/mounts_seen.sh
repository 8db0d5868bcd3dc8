# What somebody outside a session mounts inside its kernel mount is there for the session's programs once the mount's server
# has seen it, until it is taken away.
# own
. "$(dirname "$0")/own.sh"
[ -c /dev/fuse ] || { echo 'skip: no /dev/fuse here' && exit 0; }
"$bypath" mkfs i.img --size 64M >/dev/null
mkdir m
mkfifo begin ready
"$bypath" run --mount "i.img:$PWD/m" -- bash -c '
    mkdir m/late; echo below >m/late/f; ls m/late; echo >ready; read -r _ <begin
    until_it_is() { for _ in $(seq 300); do [ "$(ls m/late)" = "$1" ] && return; sleep 0.1; done; echo "never: $1"; }
    until_it_is ""; echo >ready; until_it_is f; rm -r m/late' >said &
read -r _ <ready
mount -t tmpfs t m/late
echo >begin
read -r _ <ready
umount m/late
wait
same "what was told" "$(cat said)" f
"$bypath" check i.img >/dev/null || fail "damaged"
exit "${failed:-0}"

#!/bin/bash
# An image that another kernel may be using, because its file lies where another machine can have it, is refused until
# --force is said; after a restart, on local file systems, in other containers and after an orderly end it is not.
# The other kernel is made by writing its boot id, name and a held mutex into the file, as it would stand there.
# own
# seconds: 100
set -u
. "$(dirname "$0")/own.sh"
[ -c /dev/fuse ] || { echo "no /dev/fuse here: NOT tested"; exit 0; }
bypath=$(realpath "$bypath")

# Header at 0x3000, machine at 0x3040, a process mutex at 0x14000.
put() { dd of="$1" bs=4096 iflag=fullblock oflag=seek_bytes seek=$(($2)) conv=notrunc status=none; }
zeros() { head -c "$1" /dev/zero; }
# other IMAGE held|restart|ended
other() {
    local boot='other kernel\0\0\0\0'
    printf "$boot" | put "$1" 0x3000
    printf 'token\0\0\0' | put "$1" 0x3020
    if [ "$2" = restart ]; then
        printf "$boot" | put "$1" 0x3040
    else
        { printf "${boot}another machine!" && zeros 32 && printf node-7 && zeros 58; } | put "$1" 0x3040
    fi
    if [ "$2" = ended ]; then
        { zeros 16 && printf '\x90\0\0\0' && zeros 44; } | put "$1" 0x14000
    else
        { printf '\x67\x12\0\0\0\0\0\0\x67\x12\0\0\1\0\0\0\x90\0\0\0' && zeros 44; } | put "$1" 0x14000
    fi
}
mkdir shared local m m2
# A FUSE file system, which may be another machine's; an image of ours serves as one.
$bypath mkfs outer.img --size 512M >/dev/null && $bypath mount outer.img shared || fail "no mount"
for at in shared local; do
    $bypath mkfs $at/i --size 64M >/dev/null || fail "mkfs"
    $bypath run --no-fuse --mount "$PWD/$at/i:$PWD/m" -- sh -c 'echo hello >m/f' || fail "run at $at"
done
run() { timeout 20 $bypath run "$@" --no-fuse --mount "$img:$PWD/m" -- cat m/f 2>err; }

img=$PWD/local/i
other "$img" held
[ "$(run)" = hello ] || fail "a local image with another boot id: $(cat err)"

img=$PWD/shared/i
other "$img" ended
[ "$(run)" = hello ] || fail "after an orderly end elsewhere: $(cat err)"
other "$img" restart
if [ -s /etc/machine-id ]; then
    [ "$(run)" = hello ] || fail "after a restart of this machine: $(cat err)"
fi

other "$img" held
run >/dev/null && fail "used by two kernels"
grep -q 'host node-7' err && grep -q -e --force err || fail "it does not say by whom, and what to do: $(cat err)"
for verb in "mount $img m" "import err $img:/err" "check --repair $img" "mkfs --force $img" "ls $img:/"; do
    timeout 20 $bypath $verb >out 2>&1 && fail "$verb is not refused"
    grep -q 'host node-7' out || fail "$verb does not say by whom: $(cat out)"
done
$bypath info "$img" >out 2>&1 || fail "info is refused: $(cat out)"
grep -q '^machine *in use by host node-7' out || fail "info does not tell: $(cat out)"
$bypath info --json "$img" | grep -q '"elsewhere": *true' || fail "info --json does not tell"
[ "$(run --force)" = hello ] || fail "--force: $(cat err)"
[ "$(run)" = hello ] || fail "after --force: $(cat err)"
$bypath info "$img" | grep -q '^machine *last used by' || fail "info after --force"
for verb in "import --force err $img:/err" "check --repair --force $img" "mount --force $img m"; do
    other "$img" held
    timeout 20 $bypath $verb >out 2>&1 || fail "$verb: $(cat out)"
done
# Here it is in use by this kernel, where --force takes nothing away.
[ "$(cat m/f)" = hello ] || fail "the mount"
timeout 20 $bypath run --force --no-fuse --mount "$img:$PWD/m2" -- sh -c 'echo more >m2/g' || fail "--force beside users"
[ "$(cat m/g)" = more ] || fail "two users of this kernel do not see each other"
$bypath umount m || fail umount
$bypath check "$img" >/dev/null || fail "damaged"
$bypath umount shared || fail umount
$bypath check outer.img >/dev/null || fail "the image around it is damaged"

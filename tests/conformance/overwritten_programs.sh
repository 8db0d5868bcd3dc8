# A program with set-id bits or capabilities that another user has overwritten is executed by the kernel without them, at
# once: overwritten through the kernel mount, and by a process that has the image mapped while the kernel has the old mode.
# own
python=/usr/bin/python3 # Others may not look into a home directory.
[ -x $python ] || python=$(command -v python3)
fail() { echo "$*" && exit 1; }
[ -c /dev/fuse ] || { echo "skip: no /dev/fuse here" && exit 0; }
work=$PWD
chmod 755 . && mkdir m
"$bypath" mkfs i --size 64M >/dev/null && "$bypath" mount i m && chmod 755 m || fail "no mount"
nobody() { setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; }
capable='import os, sys; os.setxattr(sys.argv[1], "security.capability", bytes.fromhex("0100000202000000000000000000000000000000"))'
has='import os, sys; print("security.capability" in os.listxattr(sys.argv[1]))'
# As nobody by the short way: a process of root's session that has become nobody.
cat >short.py <<'P'
import os, sys
how, path = sys.argv[1:]
size = os.stat(path).st_size
data = open(path, "rb").read()
os.setgroups([]), os.setresgid(65534, 65534, 65534), os.setresuid(65534, 65534, 65534)
if how == "write":
    fd = os.open(path, os.O_WRONLY)
    os.write(fd, data)
elif how == "truncate":
    os.truncate(path, size + 10)
else:
    fd = os.open(path, os.O_WRONLY | os.O_TRUNC)
    os.write(fd, data)
P
overwrite() { # WAY PATH
    case $1 in
    dd) nobody dd if=copy of="$2" conv=notrunc bs=64k status=none ;;
    cat) nobody sh -c 'cat copy >"$1"' sh "$2" ;;
    splice) nobody "$python" -c 'import os, sys
data = open("copy", "rb").read(); fd = os.open(sys.argv[1], os.O_WRONLY); r, w = os.pipe()
for at in range(0, len(data), 4096): os.write(w, data[at:at + 4096]); os.splice(r, fd, 4096)' "$2" ;;
    truncate) nobody truncate -s +10 "$2" ;;
    allocate) nobody fallocate -l 200000 "$2" ;;
    copy) nobody "$python" -c 'import os, sys
data = open(sys.argv[1], "rb"); fd = os.open(sys.argv[2], os.O_WRONLY); size = os.stat(sys.argv[1]).st_size
while size: size -= os.copy_file_range(data.fileno(), fd, size)' m/copy "$2" ;;
    short-*) "$bypath" run --no-fuse --mount "$work/i:$work/m" -- "$python" short.py "${1#short-}" "$work/$2" ;;
    esac
}
for way in dd cat splice truncate allocate copy short-write short-truncate short-empty; do
    for what in id grep; do
        cp "$(command -v $what)" copy && chmod 755 copy && cp copy m/copy && cp copy "m/$what-$way" || fail "$way: no program"
        program=m/$what-$way
        case $what in
        id) chmod 6777 "$program" && nobody "$program" -u >before && grep -qx 0 before || fail "$way: the bit is not there" ;;
        grep)
            chmod 777 "$program" && "$python" -c "$capable" "$program" || fail "$way: no capability"
            nobody "$program" CapEff /proc/self/status >before && grep -q '2$' before || fail "$way: the capability is not there"
            ;;
        esac
        overwrite $way "$program" || fail "$way $what: cannot be overwritten"
        case $what in
        id)
            nobody "$program" -u >after && grep -qx 65534 after || fail "$way: runs as $(cat after) afterwards"
            [ "$(stat -c %a "$program")" = 777 ] || fail "$way: mode $(stat -c %a "$program")"
            ;;
        grep)
            nobody "$program" CapEff /proc/self/status >after && grep -q '0000000000000000$' after || fail "$way: runs with $(cat after)"
            [ "$("$python" -c "$has" "$program")" = False ] || fail "$way: the attribute is there"
            ;;
        esac
    done
done
"$bypath" umount m && "$bypath" check i >check || fail "$(cat check)"

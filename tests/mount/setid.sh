# Set-id bits go when an ordinary user changes a file's contents, and with a change of owner to nobody, as on tmpfs.
command -v python3 >/dev/null || { echo "skip setid: no python3 here: NOT tested"; exit 0; }
cat >"$work/setid.py" <<'PY'
import ctypes, os, sys
directory, user = sys.argv[1], int(sys.argv[2])
libc = ctypes.CDLL(None, use_errno=True)
def fallocate(fd, mode):
    if libc.fallocate(fd, mode, ctypes.c_long(0), ctypes.c_long(5000)):
        raise OSError(ctypes.get_errno(), "fallocate")
ways = {
    "write": lambda fd, path: os.pwrite(fd, b"x", 0),
    "truncate": lambda fd, path: os.truncate(path, 7),
    "truncate to the same": lambda fd, path: os.truncate(path, 3000),
    "ftruncate": lambda fd, path: os.ftruncate(fd, 7),
    "allocate": lambda fd, path: fallocate(fd, 0),
    "punch": lambda fd, path: fallocate(fd, 3),
    "copy": lambda fd, path: os.copy_file_range(fd, fd, 10, 0, 100),
    "nobody": lambda fd, path: os.chown(path, -1, -1),
}
os.setgroups([])
os.setegid(user)
os.seteuid(user)
for name, way in ways.items():
    for mode in (0o6755, 0o2745):
        path = f"{directory}/{user}-{name}-{mode:o}"
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o755)
        os.write(fd, bytes(3000))
        os.chmod(path, mode)
        way(fd, path)
        print(name, f"{mode:o} becomes {os.fstat(fd).st_mode & 0o7777:o}")
PY
"$bypath" mount "$image" "$mnt" || exit 1
mkdir "$work/plain"
chmod 777 "$mnt" "$work/plain"
for user in 0 1; do
    same "as user $user" "$(python3 -S "$work/setid.py" "$mnt" $user 2>&1)" "$(python3 -S "$work/setid.py" "$work/plain" $user 2>&1)"
done
# By a user who is not the owner; the kernel has an old mode in mind.
: >"$mnt/theirs"
chmod 666 "$mnt/theirs"
short chmod 4777 "$mnt/theirs"
setpriv --reuid 1 --regid 1 --clear-groups fallocate -l 100 "$mnt/theirs"
same 'a bit that the short way has set' "$(stat -c %a "$mnt/theirs")" 777
"$bypath" umount "$mnt"

# What the kernel has behind FIFOs and sockets goes with them; and beside a kernel mount, both ways have one socket.
# own
. "$(dirname "$0")/own.sh"
fails() { echo "$1" && exit 1; }
mkdir -m 700 run && export XDG_RUNTIME_DIR=$PWD/run
"$bypath" mkfs i.img --size 64M >/dev/null
mkdir m
"$bypath" run --no-fuse -m "i.img:$PWD/m" -- python3 -c '
import os, socket
for i in range(30):
    os.mkfifo("m/f"); os.close(os.open("m/f", os.O_RDWR)); os.unlink("m/f")
    s = socket.socket(socket.AF_UNIX); s.bind("m/s"); s.close(); os.unlink("m/s")
print(os.listdir("m"))' || fails "python"
left=$(find run -mindepth 2 | wc -l)
[ "$left" -eq 0 ] || fails "$left objects are left"
[ -c /dev/fuse ] || { echo "skip: no /dev/fuse" && exit 0; }
cat >talk.py <<'P'
import socket, sys
s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); print(s.recv(9).decode())
P
# Bound by the library, connected to past it, and the other way round.
"$bypath" run -m "i.img:$PWD/m" -- sh -c '
serve() { "$@" python3 -c "
import socket
s = socket.socket(socket.AF_UNIX); s.bind(\"m/$name\"); s.listen()
for i in range(2): s.accept()[0].send(b\"hello\")" & }
past="env -u LD_PRELOAD -u BYPATH_MOUNTS"
name=a serve
name=b; eval "(unset LD_PRELOAD; exec busybox true)"; serve
for i in $(seq 100); do [ -S m/a ] && [ -S m/b ] && break; sleep 0.05; done
for name in a b; do timeout 5 python3 talk.py m/$name; timeout 5 busybox env -u LD_PRELOAD -u BYPATH_MOUNTS python3 talk.py "$PWD/m/$name"; done
wait' >out 2>&1
[ "$(grep -c hello out)" -eq 4 ] || fails "$(cat out)"
[ "$(find run -mindepth 2 | wc -l)" -eq 0 ] || fails "private objects beside a kernel mount"

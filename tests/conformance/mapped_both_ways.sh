#!/bin/bash
# A page that a program has stored into through the kernel mount is not sent back over what the short way writes later.
# own
set -eu
S=$PWD
"$BYPATH" mkfs "$S/i.img" --size 64M >/dev/null
mkdir "$S/m"
cat > "$S/stores.py" <<'X'
import mmap, os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
pages = mmap.mmap(fd, 8192)
for turn in range(20):
    pages[turn] = 65 + turn
    pages[4096 + turn] = 65 + turn
    print("stored", flush=True)
    sys.stdin.readline()
    assert pages[100 + turn] == 97 + turn, (turn, pages[100 + turn])
os.ftruncate(fd, 4200)
X
cat > "$S/writes.py" <<'X'
import os, sys
path, said, say = sys.argv[1:]
fd = os.open(path, os.O_RDWR)
said, say = open(said), open(say, "w")
for turn in range(20):
    assert said.readline() == "stored\n"
    os.pwrite(fd, bytes([97 + turn]), 100 + turn)
    if turn == 19:
        # Cut by the short way: a page with stores in it does not make it longer again.
        os.truncate(path, 4096)
        os.truncate(path, 8192)
    print(file=say, flush=True)
assert said.read() == ""
text = os.pread(fd, 8192, 0)
assert len(text) == 4200, len(text)
assert text[:20] == bytes(range(65, 85)), text[:20]
assert text[100:120] == bytes(range(97, 117)), text[100:120]
assert text[4096:] == bytes(104), text[4096:]
X
"$BYPATH" mount "$S/i.img" "$S/m"
trap '"$BYPATH" umount "$S/m"' EXIT
truncate -s 8192 "$S/m/f"
mkfifo "$S/said" "$S/say"
timeout 30 python3 "$S/stores.py" "$S/m/f" <> "$S/say" > "$S/said" &
timeout 30 "$BYPATH" run -m "$S/i.img:$S/m" -- python3 "$S/writes.py" "$S/m/f" "$S/said" "$S/say"
wait $!
trap - EXIT
"$BYPATH" umount "$S/m"
"$BYPATH" check "$S/i.img" >/dev/null

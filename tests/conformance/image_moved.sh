#!/bin/bash
# Another file comes to lie at an image's path while it is in use. Shows that a mapping has the image's bytes and not
# that file's, that nobody waits for it if it is a FIFO, and that the image goes on under its new name.
# own
# needs: python3
set -u
. "$(dirname "$0")/own.sh"
cat >case.py <<'P'
import mmap, os, sys
image, path = sys.argv[1:]
f = os.open(path, os.O_RDWR | os.O_CREAT)
os.write(f, b'hello'.ljust(8192))
os.rename(image, image + '.moved')
for lay in (lambda: open(image, 'wb').write(b'X' * (8 << 20)), lambda: os.mkfifo(image)):
    lay()
    for flags in (mmap.MAP_PRIVATE, mmap.MAP_SHARED):
        for protection in (mmap.PROT_READ, mmap.PROT_READ | mmap.PROT_WRITE):
            there = mmap.mmap(f, 4096, flags, protection)[:5]
            if there != b'hello':
                sys.exit(f'a mapping has {there}')
    os.unlink(image)
P
mkdir m
$bypath mkfs i --size 64M >/dev/null || fail mkfs
timeout 20 $bypath run --no-fuse --mount "$PWD/i:$PWD/m" -- python3 case.py "$PWD/i" m/f || fail "exit code $?"
[ "$($bypath cat i.moved:/f | head -c 5)" = hello ] && $bypath check i.moved >/dev/null || fail "the image is not what it was"

#!/bin/bash
# needs: python3 git tar make
# A tree watched as watchman and Python's watchdog do it (a watch on each directory, new ones as they come), while git
# changes branches, tar unpacks and make builds: what the watcher believes to be there is what is there.
cat >watch.py <<'P'
import ctypes, os, select, struct, sys
CREATE, DELETE, FROM, TO, WRITTEN, MODIFY, ATTRIB, SELF, IGNORED, OVERFLOW, DIR = 0x100, 0x200, 0x40, 0x80, 8, 2, 4, 0x400, 0x8000, 0x4000, 0x40000000
libc = ctypes.CDLL(None, use_errno=True)
fd = libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
top = sys.argv[1]
watched, known = {}, {}

def add(path):
    """Watches a directory and all below it; what is there already is known from the listing."""
    wd = libc.inotify_add_watch(fd, os.fsencode(path), CREATE | DELETE | FROM | TO | WRITTEN | MODIFY | ATTRIB | SELF)
    if wd < 0:
        return
    watched[wd] = path
    try:
        entries = list(os.scandir(path))
    except FileNotFoundError:
        return
    for entry in entries:
        known[entry.path] = entry.is_dir(follow_symlinks=False)
        if known[entry.path]:
            add(entry.path)

def drop(path):
    for name in [name for name in known if name == path or name.startswith(path + '/')]:
        del known[name]
    for wd in [wd for wd, at in watched.items() if at == path or at.startswith(path + '/')]:
        libc.inotify_rm_watch(fd, wd)
        del watched[wd]

add(top)
print('watching', flush=True)
poll = select.poll()
poll.register(fd, select.POLLIN)
poll.register(0, select.POLLIN)
stopping = False
while True:
    ready = dict(poll.poll(1000 if stopping else None))
    if fd not in ready:
        if stopping:
            break
        os.read(0, 100)
        stopping = True
        continue
    data, at = os.read(fd, 1 << 16), 0
    while at < len(data):
        wd, mask, cookie, length = struct.unpack_from('iIII', data, at)
        name = os.fsdecode(data[at + 16:at + 16 + length].rstrip(b'\0'))
        at += 16 + length
        assert not mask & OVERFLOW
        if wd not in watched or not name:
            continue
        path = os.path.join(watched[wd], name)
        if mask & (CREATE | TO):
            known[path] = bool(mask & DIR)
            if mask & DIR:
                add(path)
        elif mask & (DELETE | FROM):
            drop(path)
        elif path not in known:
            print('an event of what is not known', path, hex(mask))
there = {}
for where, dirs, files in os.walk(top):
    there.update({os.path.join(where, name): False for name in files})
    there.update({os.path.join(where, name): not os.path.islink(os.path.join(where, name)) for name in dirs})
for name in sorted(there.keys() ^ known.keys()):
    print('only', 'there' if name in there else 'known', name)
print('wrong kinds', [name for name in there if known.get(name, there[name]) != there[name]])
print(len(there), 'names')
P
export GIT_AUTHOR_DATE='2024-01-01T00:00:00Z' GIT_COMMITTER_DATE='2024-01-01T00:00:00Z' GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null
mkdir tree && cd tree && git init -q -b main . && git config user.name a && git config user.email a@b && git config gc.auto 0
for i in $(seq 20); do mkdir -p "a$i/b"; for j in $(seq 10); do echo "$i $j" >"a$i/b/f$j"; done; done
git add . && git commit -qm one && git checkout -qb other && git rm -qr a1 a2 a3
for i in $(seq 21 30); do mkdir -p "a$i/c/d"; echo "$i" >"a$i/c/d/a-name-that-is-longer-than-those-that-are-cached-$i"; done
for i in $(seq 5 9); do echo more >>"a$i/b/f1"; done
git add . && git commit -qm two && git checkout -q main
cd ..
exec 3> >(exec python3 watch.py tree >out)
watcher=$!
for _ in $(seq 2000); do grep -qs watching out && break; sleep 0.01; done
cd tree
git checkout -q other && git checkout -q main && git checkout -q other
mkdir unpacked && tar cf - -C .. watch.py tree/a5 tree/a25 | tar xf - -C unpacked
printf 'all: x y\nx:\n\tmkdir -p out/x && echo 1 >out/x/1 && cp -r a6 out/x/copy\ny:\n\tmv unpacked moved && ln -s moved out/link\n' >Makefile
mkdir out && make -s -j2 && rm -r a7 && git checkout -q -- a7 && git stash -q && git stash pop -q
cd ..
echo stop >&3
exec 3>&-
wait $watcher
cat out
rm -rf tree watch.py

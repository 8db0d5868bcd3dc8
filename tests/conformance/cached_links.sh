#!/bin/bash
# own
# seconds: 120
# Goal: a file that is behind a cache by one name, and gets another one below, is one file in the session: what is written by
# either name, in the session or below, is read by both, whether it is open, whether it has been changed, and whether the link
# was made in the session or between two. A name that goes is counted. Method: a second program makes links below and writes.
. "$(dirname "$0")/own.sh"
in_it() { timeout 60 "$bypath" run --no-fuse --mount "host:$PWD/low:$PWD/at,cache=$PWD/c.img:64M" -- python3 - "$PWD/at" "$PWD/low" "$@"; }
begin_again() { rm -rf low at c.img && mkdir -p low/a low/b at && echo x >low/a/f && ln -s f low/a/s; }
until_module
cat >files.py <<'P'
import os, sys, time
from until import until
at, low = sys.argv[1:3]
def read(path):
    with open(path) as file:
        return file.read()
def add(path, text):
    with open(path, "a") as file:
        file.write(text)
def is_one(one, other):
    try:
        one, other = os.lstat(one), os.lstat(other)
    except FileNotFoundError:
        return False
    return (one.st_ino, one.st_nlink) == (other.st_ino, 2) and other.st_nlink == 2
P
begin_again
in_it >got 2>&1 <<'P' || fail "in a session: $(cat got)"
from files import *
for dir in "a", "b":
    os.listdir(f"{at}/{dir}")
read(f"{at}/a/f"), os.readlink(f"{at}/a/s")
time.sleep(0.3)
for name in "f", "s":
    os.link(f"{low}/a/{name}", f"{low}/b/{name}", follow_symlinks=False)
    until(lambda: is_one(f"{at}/a/{name}", f"{at}/b/{name}"), f"{name} is one file")
text = "x\n"
for number, (top, name) in enumerate([(low, "b/f"), (at, "a/f"), (at, "b/f"), (low, "a/f")]):
    text += f"{number}\n"
    add(f"{top}/{name}", f"{number}\n")
    for path in f"{at}/a/f", f"{at}/b/f", f"{low}/a/f", f"{low}/b/f":
        until(lambda: read(path) == text, f"{text!r} in {path}, after {name} of {top}: {read(path)!r}")
os.rename(f"{low}/b/f", f"{low}/b/g")
until(lambda: is_one(f"{at}/a/f", f"{at}/b/g"), "g is f")
os.unlink(f"{low}/a/f")
until(lambda: os.stat(f"{at}/b/g").st_nlink == 1, "one name of g")
P
begin_again
in_it >got 2>&1 <<'P' || fail "of an open file: $(cat got)"
from files import *
os.listdir(f"{at}/b")
file = open(f"{at}/a/f", "a+")
print("written", file=file, flush=True)
time.sleep(0.3)
os.link(f"{low}/a/f", f"{low}/b/f")
until(lambda: os.path.exists(f"{at}/b/f"), "b/f")
print("more", file=file, flush=True)
os.fsync(file.fileno())
until(lambda: is_one(f"{at}/a/f", f"{at}/b/f"), "one file")
print("last", file=file, flush=True)
until(lambda: read(f"{at}/b/f") == read(f"{at}/a/f") == "x\nwritten\nmore\nlast\n", "what is written by the other name")
P
same 'of an open file: below' "$(cat low/b/f)" $'x\nwritten\nmore\nlast'
begin_again
in_it >got 2>&1 <<'P' || fail "first: $(cat got)"
from files import *
read(f"{at}/a/f"), os.listdir(f"{at}/b")
P
ln low/a/f low/b/f && echo y >>low/b/f
for first in a/f b/f; do
    in_it "$first" >got 2>&1 <<'P' || fail "between sessions, $first first: $(cat got)"
from files import *
if read(f"{at}/{sys.argv[3]}") != read(f"{low}/a/f"):
    sys.exit("stale")
until(lambda: is_one(f"{at}/a/f", f"{at}/b/f"), "one file")
add(f"{at}/a/f", "z\n")
if read(f"{at}/b/f")[-2:] != "z\n":
    sys.exit("another file")
P
done
same 'between sessions: below' "$(cat low/a/f)" $'x\ny\nz\nz'
"$bypath" check "$PWD/c.img" >checked || { fail "check: $(cat checked)"; }
exit ${failed:-0}

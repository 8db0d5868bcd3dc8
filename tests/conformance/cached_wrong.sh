#!/bin/bash
# own
# seconds: 200
# What goes wrong behind a cache: changed by others while newer here (three ways to decide), refused for good and skipped,
# below gone, read out without it. Method: each by real programs; below, what is said, and the exit code are compared.
. "$(dirname "$0")/own.sh"
[ "$(stat -f -c %T .)" = tmpfs ] || { echo 'skip: not on tmpfs' && exit 0; }
low=$PWD/low at=$PWD/at image=$PWD/c.img
mkdir low
run() { # OPTIONS COMMAND…
    local options=$1
    shift
    timeout 60 "$bypath" run --no-fuse --mount "host:$low:$at,cache=$image:64M$options" -- "$@"
}
# A file that others have changed while it is newer here. The image is left, so that no round comes between.
behind() { # OPTION
    rm -rf low c.img && mkdir low && echo first >low/f && echo second >low/g
    timeout 60 "$bypath" run --no-fuse --leave --mount "host:$low:$at,cache=$image:64M,sync=image$1" -- bash -c 'cat "$1/f" "$1/g" >/dev/null; echo ours >"$1/f"; echo mine >"$1/g"; echo theirs-and-longer >"$2/f"' bash "$at" "$low" 2>err
}
behind ',conflict=ours'
"$bypath" cache drain low 2>err || fail "ours: $(cat err)"
same 'ours' "$(cat low/f low/g; ls low)" $'ours\nmine\nf\ng'
behind ''
"$bypath" cache drain low 2>err || fail "both: $(cat err)"
same 'both' "$(cat low/f low/g low/f.bypath-theirs; ls low)" $'ours\nmine\ntheirs-and-longer\nf\nf.bypath-theirs\ng'
run '' cat "$at/f" "$at/f.bypath-theirs" >got 2>err
same 'both, by the cache' "$(cat got err)" $'ours\ntheirs-and-longer'
behind ',conflict=stop'
"$bypath" cache drain low 2>err && fail 'stop: drained all the same'
grep -q 'f:' err || fail "stop: says nothing of it: $(cat err)"
same 'stop: theirs stays, the rest is written' "$(cat low/f low/g)" $'theirs-and-longer\nmine'
"$bypath" cache status low | grep -q 'not in the directory yet' || fail "stop: status: $("$bypath" cache status low)"
"$bypath" cache skip low f >got || fail 'stop: skip'
grep -q /lost/ got || fail "skip: where it is: $(cat got)"
"$bypath" cache drain low || fail 'stop: drain after skip'
same 'stop: theirs' "$(cat low/f; ls -A low)" $'theirs-and-longer\nf\ng'
same 'stop: ours is kept in the image' "$("$bypath" cat "$image:$(sed 's/.*\(\/lost\/[^ ;:]*\).*/\1/' got)")" ours
run '' cat "$at/f" >got 2>err
same 'stop: by the cache' "$(cat got err)" theirs-and-longer
"$bypath" check "$image" >/dev/null || fail 'check'

# Both replace a file by way of the same temporary name: the other program writes over the session's file at that name, before
# the round that moves it, and moves it itself.
rm -rf low c.img && mkdir low && echo first >low/f
run '' python3 - "$at" "$low" >got 2>err <<'P'
import os, sys, time
at, low = sys.argv[1:]
def put(path, text):
    with open(path, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
put(f"{at}/.f.new", "ours\n")
os.rename(f"{at}/.f.new", f"{at}/f")
put(f"{low}/.f.new", "theirs-and-longer\n")
os.rename(f"{low}/.f.new", f"{low}/f")
deadline = time.monotonic() + 20
while not os.path.exists(f"{low}/f.bypath-theirs") and time.monotonic() < deadline:
    time.sleep(0.01)
time.sleep(0.2)
print(open(f"{at}/f").read() + open(f"{at}/f.bypath-theirs").read(), end="")
P
same 'the same temporary name' "$(cat got)" $'ours\ntheirs-and-longer'
same 'the same temporary name, below' "$(cat low/f low/f.bypath-theirs; ls -A low)" $'ours\ntheirs-and-longer\nf\nf.bypath-theirs'

# A part that refuses for good: the rest is written, and fsync of that succeeds; that of the part fails, and what is skipped
# is out of the way.
rm -rf low c.img && mkdir -p low/part && echo old >low/part/f && mount --bind low/part low/part && mount -o remount,bind,ro low/part
run '' bash -c 'cd "$1"; echo new >part/f; echo made >part/made; echo fine >g
sync g && echo synced; sync part/f 2>/dev/null || echo refused; sync -f g 2>/dev/null || echo "not all"; cat "$2/g" part/f' bash "$at" "$low" >got 2>err
same 'refused' "$(cat got)" $'synced\nrefused\nnot all\nfine\nnew'
for what in 'part/f: read-only file system' 'part/made: ' 'bypath cache skip'; do grep -q "$what" err || fail "refused: not said: $what: $(cat err)"; done
"$bypath" cache status "$image" | grep -q '    part/f: read-only file system; ' || fail "refused: status: $("$bypath" cache status "$image")"
"$bypath" cache drain "$image" 2>err && fail 'refused: drained all the same'
grep -q 'part/f: read-only' err || fail "refused: drain: $(cat err)"
grep -q 'bypath cache drain' err || fail "refused: what to do is not said: $(cat err)"
"$bypath" cache skip "$image" part/f >/dev/null && "$bypath" cache skip "$image" part/made >/dev/null || fail 'refused: skip'
"$bypath" cache drain "$image" || fail 'refused: drain after skip'
same 'refused: below' "$(cat low/part/f low/g; ls low/part)" $'old\nfine\nf'
umount low/part

# Below is gone: what it has not got can be had.
rm -rf low c.img && mkdir low && mount -t tmpfs -o size=8M low low && echo here >low/f && seq 100000 >low/long && mkdir low/d && echo in >low/d/g
timeout 60 "$bypath" run --no-fuse --leave --mount "host:$low:$at,cache=$image:64M,sync=image" -- bash -c 'cd "$1"; ls -R . >/dev/null; cat f >/dev/null; echo changed >>f; mkdir new && echo made >new/x && rm d/g; echo begin >wide; truncate -s 2G wide; echo end >>wide' bash "$at" 2>err
umount low
timeout 60 "$bypath" run --no-fuse --mount "host:$low:$at,cache=$image" -- true 2>err && fail 'gone: another directory was taken for it'
grep -q "cache of host:$low" err || fail "gone: $(cat err)"
mkdir out && "$bypath" cache export "$image" out >said 2>err || fail "export: $(cat err)"
same 'exported' "$(cat out/f out/new/x; find out -type f | sort | tr '\n' ' ')" $'here\nchanged\nmade\nout/f out/new/x out/wide '
same 'exported: a hole' "$(stat -c '%s' out/wide; [ $(stat -c %b out/wide) -lt 1000 ] && echo sparse; head -c 6 out/wide; tail -c 4 out/wide)" $'2147483652\nsparse\nbegin\nend'
grep -q 'd/g' said || fail "export: removed names are not said: $(cat said)"
rm "$image"

# A directory that the user may not read is named, and not the image, which is not even made.
if [ "$(id -u)" = 0 ]; then
    rm -rf low shut && mkdir -m 700 low && mkdir -m 777 shut
    user timeout 60 "$bypath" run --no-fuse --mount "host:$low:$at,cache=$PWD/shut/c.img:64M" -- true 2>err && fail 'a directory that may not be read'
    same 'refused: what' "$(grep -c "^bypath: host:$low: permission denied" err):$(ls shut)" 1:
fi

# A cache that is another directory's, and one that is left: refused by name, and gone on with.
rm -rf low && mkdir low other && echo 1 >low/f
timeout 60 "$bypath" run --no-fuse --leave --mount "host:$low:$at,cache=$image:64M,sync=image" -- bash -c 'echo 2 >"$1/f"' bash "$at" 2>err
timeout 60 "$bypath" run --no-fuse --mount "host:$PWD/other:$at,cache=$image" -- true 2>err && fail 'the cache of another directory was used'
grep -q "cache of host:$low" err || fail "another's: $(cat err)"
timeout 60 "$bypath" run --no-fuse --mount "host:$low:$at,cache=$PWD/second.img:64M" -- true 2>err && fail 'a second cache was allowed'
grep -q "$image" err || fail "a second: $(cat err)"
run '' cat "$at/f" >got
same 'left' "$(cat got low/f)" $'2\n2'
exit $failed

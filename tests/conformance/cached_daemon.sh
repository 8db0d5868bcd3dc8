#!/bin/bash
# own
# seconds: 120
# needs: bindfs
# A FUSE daemon behind a cache image reads as it does without: first, warm, without the daemon being asked, in a second
# session; what changes behind its back is seen; another daemon is refused; a daemon that was killed and is started
# again goes on. Method: bindfs over a directory, the same listings and contents by the mount and beside it, its system
# calls counted.
set -u
failed=0
fail() { echo "$*" && failed=1; }
point=$PWD/m image=$PWD/c.img
mkdir -p m low/d/e low/many low/other
echo hello >low/f && seq 60000 >low/d/big && ln -s d/big low/l && ln -s nowhere low/dangling && ln low/f low/d/hard && mkfifo low/fifo
truncate -s 3M low/holes && printf x | dd of=low/holes bs=1 seek=1500000 conv=notrunc 2>/dev/null
touch -d '1999-12-31 23:59:59.123456789' low/d/e/old && head -c 5000000 /dev/urandom >low/random
long=$(printf 'n%.0s' $(seq 250)) && echo long >"low/$long" && for i in $(seq 700); do echo "$i" >"low/many/name-$i"; done
python3 -c 'import os; os.setxattr("low/f", "user.note", b"text")' 2>/dev/null
behind() { # OPTIONS COMMAND…
    local options=$1
    shift
    timeout 60 "$bypath" run --no-fuse --mount "fuse:bindfs -f $PWD/low @:$point,cache=$image:64M$options" -- "$@" 2>err
}
daemon() { for id in $(pgrep -x bindfs); do tr '\0' ' ' <"/proc/$id/cmdline" | grep -q "$PWD/low " && echo "$id"; done; }
listing() { find "$1" -printf '%P %y %m %n %s %T@ %C@ %l %U %G\n' | sort; }
contents() { (cd "$1" && find . -type f -exec md5sum {} + | sort); }
same() { # WHEN OPTIONS
    listing low >kernel && contents low >>kernel
    behind "$2" bash -c "$(declare -f listing contents); listing $point; contents $point" >here
    cmp -s kernel here || { fail "$1: not the same:" && diff kernel here | head -20 && cat err; }
    "$bypath" check "$image" >checked || { fail "$1: check" && cat checked; }
}
same first ''
same again ''
# Warm, the daemon has nothing to do.
behind ,actimeo=max "$bypath" mounts >shown && grep -q 'fuse behind' shown || fail "bypath mounts does not show it: $(cat shown)"
if command -v strace >/dev/null; then
    behind ,actimeo=max bash -c "$(declare -f listing contents daemon)
        strace -f -qq -o calls -p \$(daemon) & sleep 1; listing $point >/dev/null; contents $point >/dev/null; kill \$!; wait \$!" >/dev/null
    [ -e calls ] || fail 'strace has seen nothing'
    calls=$(grep -c '"' calls)
    [ "$calls" -le 20 ] || fail "the daemon did something $calls times for what was here: $(tail -5 calls)"
else
    echo 'skip: no strace: that the daemon is not asked when all is here is NOT tested'
fi
attributes='import os, sys; f = sys.argv[1]; print([(n, os.getxattr(f, n)) for n in os.listxattr(f)])'
for f in f d d/big; do [ "$(behind '' python3 -c "$attributes" "$point/$f")" = "$(python3 -c "$attributes" low/$f)" ] || fail "attributes of $f"; done
behind '' python3 -c "
import mmap, os
f = open('$point/random', 'rb'); g = open('low/random', 'rb')
assert mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)[:] == g.read()
" || fail "mapping: $(cat err)"
behind ,ro sh -c "touch $point/n" 2>/dev/null && fail 'it could be changed'

# Another daemon's cache is no cache of this one's; nor is it one of a directory.
timeout 60 "$bypath" run --no-fuse --mount "fuse:bindfs -f $PWD/low/other @:$point,cache=$image" -- true 2>err && fail 'the cache of another daemon was taken'
grep -q "is the cache of 'fuse:bindfs" err || fail "another daemon: $(cat err)"
timeout 60 "$bypath" run --no-fuse --mount "host:$PWD/low:$point,cache=$image" -- true 2>err && fail 'the cache of a daemon was taken for that of a directory'

# What changes behind the daemon is seen within the time given.
change() { echo changed >low/f && rm low/many/name-1 && mv low/many/name-2 low/many/moved && echo new >low/many/new && rm -rf low/d/e && mkdir low/d/e2 &&
    mv low/random low/d/e2 && chmod 600 low/d/big && ln -sfn f low/l && echo replaced >low/r && mv low/r low/holes; }
behind ,actimeo=1 bash -c "$(declare -f listing contents change); listing $point >/dev/null; contents $point >/dev/null; change
    for i in \$(seq 100); do listing $point >here; contents $point >>here; listing low >kernel; contents low >>kernel; cmp -s kernel here && exit 0; sleep 0.1; done; diff kernel here; exit 1" || fail "changes are not seen: $(cat err)"
same 'after changes' ''

# A daemon that is killed and started again.
echo later >low/many/later
behind ,restart,actimeo=1 bash -c "$(declare -f daemon); ls $point/many >/dev/null; kill -9 \$(daemon)
    for i in \$(seq 50); do [ \"\$(cat $point/many/later 2>/dev/null)\" = later ] && exit 0; sleep 0.1; done; exit 1" || fail "after a restart: $(cat err)"
[ $failed -eq 0 ] && echo fine
exit $failed

#!/bin/bash
# own
# seconds: 120
# A directory behind a cache image reads as it is: names, attributes, contents, links, holes, attributes with a name; again
# from the image alone; and what others change below is seen. With the option ro, as here, it cannot be changed. Method: the same listings and
# contents by the mount and beside it, first, warm, in a second session, after changes, and with an image that is too small.
set -u
failed=0
fail() { echo "$*" && failed=1; }
point=$PWD/m image=$PWD/c.img
mkdir -p m low/d/e low/many low/closed
echo hello >low/f && seq 60000 >low/d/big && ln -s d/big low/l && ln -s nowhere low/dangling && ln low/f low/d/hard && mkfifo low/fifo
ln -s "$(printf 'x/%.0s' $(seq 150))" low/long && touch -d '1999-12-31 23:59:59.123456789' low/d/e/old && chmod 4750 low/d/e/old
truncate -s 3M low/holes && printf x | dd of=low/holes bs=1 seek=1500000 conv=notrunc 2>/dev/null
long=$(printf 'n%.0s' $(seq 250)) && echo long >"low/$long" && for i in $(seq 700); do echo "$i" >"low/many/name-$i"; done
head -c 5000000 /dev/urandom >low/random && python3 -c 'import os; os.setxattr("low/f", "user.note", b"text")' 2>/dev/null
cached() { # OPTIONS COMMAND…
    local options=$1
    shift
    timeout 60 "$bypath" run --no-fuse --mount "host:$PWD/low:$point,ro,cache=$image:64M$options" -- "$@" 2>err
}
listing() { find "$1" -printf '%P %y %m %n %s %T@ %C@ %b %l %U %G\n' | sort; }
contents() { (cd "$1" && find . -type f -exec md5sum {} + | sort); }
same() { # WHEN OPTIONS
    listing low >kernel && contents low >>kernel
    cached "$2" bash -c "$(declare -f listing contents); listing $point; contents $point" >here
    cmp -s kernel here || { fail "$1: not the same:" && diff kernel here | head -20; }
    "$bypath" check "$image" >checked || { fail "$1: check" && cat checked; }
}
same first ''
same again ''
same 'without looking below' ,actimeo=max
mv low hidden && mkdir low
cached ,actimeo=max cat "$point/d/big" >big 2>/dev/null && fail "another directory at the same path was taken for the cache's"
grep -q 'is the cache of' err || fail "another directory: $(cat err)"
rmdir low && mv hidden low

# Single looks, in directories that nobody has listed.
rm -f "$image"
[ "$(cached '' cat "$point/d/e/../hard" "$point/many/name-7" "$point/$long")" = $'hello\n7\nlong' ] || fail 'single looks'
cached '' cat "$point/many/name-701" "$point/none/x" >/dev/null && fail 'a name that is not there'
cached '' sh -c "cd $point/d && cat ../l | tail -1 && readlink $point/long | wc -c && pwd -P && ls -d /$point/d/e" >said
[ "$(cat said)" = "$(printf '60000\n301\n%s\n%s' "$point/d" "/$point/d/e")" ] || fail "links and dots: $(cat said)"
attributes='import os, sys; f = sys.argv[1]; print([(n, os.getxattr(f, n)) for n in os.listxattr(f)])'
for f in f l d d/big; do [ "$(cached '' python3 -c "$attributes" "$point/$f")" = "$(python3 -c "$attributes" low/$f)" ] || fail "attributes of $f"; done
cached '' python3 -c "
import mmap, os
f = open('$point/random', 'rb'); g = open('low/random', 'rb')
m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)
assert m[:] == g.read() and os.pread(f.fileno(), 10, 4999995) == os.pread(g.fileno(), 10, 4999995)
h, k = os.open('$point/holes', os.O_RDONLY), os.open('low/holes', os.O_RDONLY)
assert os.lseek(h, 0, os.SEEK_DATA) == os.lseek(k, 0, os.SEEK_DATA)
" || fail "mapping, parts, holes: $(cat err)"
"$bypath" check "$image" >checked || { fail 'single looks: check' && cat checked; }

# With the option ro nothing can be changed.
cached '' bash -c "cd $point; for try in 'touch n' 'rm f' 'mkdir n' 'mv f g' 'ln f g' 'ln -s f g' 'rmdir many' 'truncate -s 0 f' 'chmod 0 f' 'dd if=/dev/null of=f conv=notrunc'; do
    \$try 2>&1 | grep -q 'Read-only file system' || echo \"\$try: done, or refused with another error\"; done" >tries
cached '' python3 -c "
import errno, os
try: os.setxattr('$point/f', 'user.x', b'y')
except OSError as error: raise SystemExit(error.errno != errno.EROFS)
raise SystemExit(1)" || fail 'an attribute could be set'
[ -s tries ] && fail "$(cat tries)"
same 'after the tries' ''

# What others change is seen within the time given, and at the start of the next session at once.
change() { echo changed >low/f && rm low/many/name-1 && mv low/many/name-2 low/many/moved && echo new >low/many/new && rm -rf low/d/e && mkdir low/d/e2 &&
    mv low/random low/d/e2 && chmod 600 low/d/big && ln -sfn f low/l && echo replaced >low/r && mv low/r low/holes; }
cached ,actimeo=1 bash -c "$(declare -f listing contents change); listing $point >/dev/null; contents $point >/dev/null; change
    for i in \$(seq 100); do listing $point >here; contents $point >>here; listing low >kernel; contents low >>kernel; cmp -s kernel here && exit 0; sleep 0.1; done; diff kernel here; exit 1" || fail "changes are not seen: $(cat err)"
same 'after changes in a session' ''
echo more >>low/f && rm low/many/new && mkdir low/many/deeper && echo x >low/many/deeper/x
same 'after changes between sessions' ''

# A file whose first name goes is read by another.
mkdir -p low/first low/second && seq 50000 >low/first/name && ln low/first/name low/second/name
cached '' bash -c "cd $point && ls -l first/name >/dev/null && ls -l second/name >/dev/null && rm $PWD/low/first/name && for i in \$(seq 100); do [ -e first/name ] || break; sleep 0.1; done
    [ ! -e first/name ] && cmp second/name $PWD/low/second/name" || fail "by another name: $(cat err)"
"$bypath" check "$image" >checked || { fail 'by another name: check' && cat checked; }

# The kernel tells of changes: they are seen without a round over all. A file that is replaced again and again is never missing.
told() { for i in $(seq 10); do mkdir -p low/told/$i && echo $i >low/told/$i/f; done && mv low/told/3 low/told/4/in && rm -r low/told/5 && echo longer >low/told/6/f &&
    chmod 700 low/told/7 && for i in $(seq 300); do echo $i >low/many/told-$i; done && mv low/d low/told/d && ln -s f low/told/8/l; }
mkdir -p low/told/old && echo old >low/told/old/f
cached '' bash -c "$(declare -f listing contents told); listing $point >/dev/null; contents $point >/dev/null; told
    for i in \$(seq 150); do listing $point >here; contents $point >>here; listing low >kernel; contents low >>kernel; cmp -s kernel here && exit 0; sleep 0.1; done; diff kernel here; exit 1" || fail "changes are not told: $(cat err)"
same 'after what was told' ''
cached '' bash -c "ls -R $point/told >/dev/null; (for i in \$(seq 200); do echo \$i >low/told/next && mv low/told/next low/told/old/f; sleep 0.005; done) & kid=\$!
    while kill -0 \$kid 2>/dev/null; do cat $point/told/old/f >/dev/null || { echo missing; exit 1; }; done" >said 2>&1 || fail "a file that is being replaced: $(tail -3 said) $(cat err)"

# `bypath run` is killed, its program goes on, and sees what changes; the session after it too. Nothing is left then.
mkdir -p low/killed && echo before >low/killed/f
"$bypath" run --no-fuse --mount "host:$PWD/low:$point,ro,cache=$image:64M" -- bash -c "cat $point/killed/f; : >$PWD/ready; for i in \$(seq 100); do [ -e $PWD/killed ] && break; sleep 0.1; done
    echo after, and longer >low/killed/f; echo new >low/killed/new; for i in \$(seq 100); do [ \"\$(cat $point/killed/f $point/killed/new 2>/dev/null)\" = 'after, and longer
new' ] && break; sleep 0.1; done; cat $point/killed/f >$PWD/seen" >/dev/null 2>err &
killed=$!
for i in $(seq 100); do [ -e ready ] && break; sleep 0.1; done
kill -9 $killed; wait $killed 2>/dev/null; : >killed
for i in $(seq 200); do [ -s seen ] && break; sleep 0.1; done
[ "$(cat seen 2>/dev/null)" = 'after, and longer' ] || fail "after bypath run was killed: $(cat seen err)"
for i in $(seq 100); do ps -eo args | grep -q "[c]ache-spare .*$image" || break; sleep 0.1; done
ps -eo args | grep "[c]ache-spare .*$image" && fail 'who kept it fresh is left'
same 'after a session that was killed' ''

# An image with less room than the files: the files are read past it.
rm -f "$image" && head -c 40000000 /dev/urandom >low/large1 && cp low/large1 low/large2
image=$PWD/small.img
timeout 60 "$bypath" run --no-fuse --mount "host:$PWD/low:$point,ro,cache=$image:32M" -- sh -c "cmp $point/large1 low/large1 && cmp $point/large2 low/large2" 2>err || fail "too small: $(cat err)"

# A tree ten times the image: what was looked at last is here, what has gone is brought again; names too. Method: all is
# read twice, by two at once; then a file is read, removed below, and read again.
rm -r low/large1 low/large2 && mkdir -p low/tree && for i in $(seq 400); do head -c 800000 /dev/urandom >low/tree/$i; done && echo last >low/tree/last
image=$PWD/tenth.img
reads="find $point -type f -exec md5sum {} + >/dev/null & find $point -type f -exec md5sum {} + | sed \"s: $point: .:\" | sort; wait"
contents low >kernel
for i in 1 2; do
    timeout 100 "$bypath" run --no-fuse --mount "host:$PWD/low:$point,ro,cache=$image:32M,actimeo=max" -- bash -c "$reads" >here 2>err
    cmp -s kernel here || { fail "ten times the image, time $i:" && diff kernel here | head -5 && cat err; }
done
timeout 60 "$bypath" run --no-fuse --mount "host:$PWD/low:$point,ro,cache=$image:32M,actimeo=max" -- sh -c "cat $point/tree/last $point/tree/1 >/dev/null; mv low/tree/1 low/tree/last .; cat $point/tree/last; md5sum <$point/tree/1" >said 2>err
[ "$(cat said)" = "last
$(md5sum <1)" ] || fail "what was read last is not here: $(cat said err)"
mv 1 last low/tree
"$bypath" check "$image" >checked || { fail 'ten times the image: check' && cat checked; }
image=$PWD/names.img && python3 -c "
import os
for d in range(60):
    os.makedirs(f'low/tree/names/{d}')
    for i in range(1000): os.close(os.open(f'low/tree/names/{d}/a-name-that-takes-some-room-{i}', os.O_CREAT))"
listing low/tree/names >kernel
timeout 100 "$bypath" run --no-fuse --mount "host:$PWD/low:$point,ro,cache=$image:16M,actimeo=max" -- bash -c "$(declare -f listing); listing $point/tree/names >here1; listing $point/tree/names" >here 2>err
cmp -s kernel here && cmp -s kernel here1 || { fail "more names than the image has room for:" && diff kernel here | head -5 && cat err; }
"$bypath" check "$image" >checked || { fail 'names: check' && cat checked; }
rm -r low/tree

# Two sessions, and a crowd that brings the same at once; some of it is killed.
image=$PWD/crowd.img
for i in 1 2; do
    timeout 60 "$bypath" run --no-fuse --mount "host:$PWD/low:$point,ro,cache=$image:256M" -- bash -c "for j in 1 2 3; do (find $point -type f -exec md5sum {} + >/dev/null) & kids[\$j]=\$!; done; sleep 0.1; kill -9 \${kids[2]}; wait; cd $point && find . -type f -exec md5sum {} + | sort" >crowd$i 2>err$i &
done
wait
contents low >kernel
cmp -s kernel crowd1 && cmp -s kernel crowd2 || { fail 'a crowd: not the same' && diff kernel crowd1 | head && diff kernel crowd2 | head && cat err1 err2; }
"$bypath" check "$image" >checked || { fail 'a crowd: check' && cat checked; }
[ $failed -eq 0 ] && echo fine
exit $failed

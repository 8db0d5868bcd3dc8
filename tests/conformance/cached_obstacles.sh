#!/bin/bash
# own
# seconds: 300
# needs: python3 mkfs.ext4 chattr
# Obstacles below a cached directory: a file or a directory that may not be changed, a full disk, a quota, a file system that
# becomes read-only, a directory without rights, one that was replaced. Each costs only what depends on it: fsync of anything else
# succeeds and that is below at once, fsync of that fails and says why, the session says which file, `bypath cache drain` too, and
# when the obstacle has gone all of it arrives.
. "$(dirname "$0")/own.sh"
[ "$(stat -f -c %T .)" = tmpfs ] || { echo 'skip: not on tmpfs' && exit 0; }
mkdir low && truncate -s 24M disk
# Not all kernels have quotas.
{ mkfs.ext4 -q -F -O quota disk && mount -o loop,usrquota disk low || mkfs.ext4 -q -F disk && mount -o loop disk low; } 2>/dev/null ||
    { echo 'skip: no ext4 on a loop device' && exit 0; }
export work
low=$PWD/low at=$PWD/at image=$PWD/c.img as=
chmod 755 . && mkdir -m 755 at
cat >sync.py <<'P'
# For each path: whether fsync of it fails, and with what.
import errno, os, sys
for path in sys.argv[1:]:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
        print(path, "ok")
    except OSError as error:
        print(path, errno.errorcode[error.errno])
    os.close(file)
P
# session COMMAND…: left as it is in the end; `$1` is the mount, `$2` the directory below.
session() {
    timeout 60 $as "$bypath" run --no-fuse --leave --mount "host:$low:$at,cache=$image:64M" -- bash -c "cd \"\$1\"; $1" bash "$at" "$low" >got 2>err
}
fresh() {
    find low -mindepth 1 -maxdepth 1 ! -name lost+found -exec rm -rf {} +
    rm -f c.img
    mkdir -p low/d/e low/other && echo old | tee low/f low/g low/d/x low/d/e/y low/other/z >/dev/null
    [ -z "$as" ] || chown -R 65534:65534 low .
}
# drains WHAT FILE: it fails, names the file, and ends in time.
refuses() {
    timeout 30 $as "$bypath" cache drain "$image" >said 2>&1
    local code=$?
    [ $code = 1 ] || { echo "$1: drain ends with $code: $(head -3 said)" && failed=1; }
    grep -qF "$2" said || { echo "$1: drain does not name $2: $(head -5 said)" && failed=1; }
}
drains() {
    timeout 60 $as "$bypath" cache drain "$image" >said 2>&1 || { echo "$1: drain, when the obstacle has gone: $(head -5 said)" && failed=1; }
    [ ! -e low/.bypath-park ] && [ -z "$(find low -name '*.bypath-theirs*')" ] || { echo "$1: left: $(find low -name '*bypath*')" && failed=1; }
    "$bypath" check "$image" >said || { echo "$1: $(tail -3 said)" && failed=1; }
}
rest='ls -R . >/dev/null; cat f g d/x d/e/y other/z >/dev/null; '

# A file that may not be changed.
fresh
session "$rest"'(cd "$2"; chattr +i f); echo new >f; echo new >g; echo new >made; mv d/x other/x; chmod 600 d/e/y; python3 "$work/sync.py" g made other f g'
same 'a file: fsync' "$(cat got)" $'g ok\nmade ok\nother ok\nf EPERM\ng ok'
same 'a file: the rest is below' "$(cat low/f low/g low/made low/other/x; stat -c %a low/d/e/y; ls low/d)" $'old\nnew\nnew\nold\n600\ne'
refuses 'a file' f
chattr -i low/f
drains 'a file'
same 'a file: in the end' "$(cat low/f low/g)" $'new\nnew'

# A directory that may not be changed: new names, removed ones, and what is to come from elsewhere.
fresh
session "$rest"'(cd "$2"; chattr +i d); echo new >d/made; rm d/x; mv g d/g; echo new >f; echo deep >d/e/made; mkdir other/sub; python3 "$work/sync.py" f other/sub d/e/made d/made d'
same 'a directory: fsync' "$(cat got)" $'f ok\nother/sub ok\nd/e/made ok\nd/made EPERM\nd EPERM'
same 'a directory: the rest is below' "$(cat low/f low/d/e/made; ls low/d low/other)" $'new\ndeep\nlow/d:\ne\nx\n\nlow/other:\nsub\nz'
refuses 'a directory' d/made
chattr -i low/d
drains 'a directory'
same 'a directory: in the end' "$(cat low/d/made low/d/g; ls low/d; [ -e low/g ] || echo no g)" $'new\nold\ne\ng\nmade\nno g'

# A full disk: what needs no room is written, what frees some is done.
fresh
head -c 6M /dev/zero >low/large
session "$rest"'cat large >/dev/null; (cd "$2"; cat /dev/zero >filler 2>/dev/null; sync -f .); head -c 2M /dev/urandom >wide; md5sum <wide >"$work/wide.sum"; mv d/x other/x; chmod 600 g; python3 "$work/sync.py" other g wide; rm large; python3 "$work/sync.py" wide'
same 'full: fsync' "$(cat got)" $'other ok\ng ok\nwide ENOSPC\nwide ok'
same 'full: the rest is below' "$(cat low/other/x; stat -c %a low/g; md5sum <low/wide)" "old
600
$(cat wide.sum)"
drains 'full, after something was removed'
fresh
session "$rest"'(cd "$2"; cat /dev/zero >filler 2>/dev/null; sync -f .); head -c 2M /dev/urandom >wide; md5sum <wide >"$work/wide.sum"; echo x >other/small; rm d/x; python3 "$work/sync.py" d wide'
same 'full for good: fsync' "$(cat got)" $'d ok\nwide ENOSPC'
same 'full for good: the rest is below' "$(ls low/d)" e
refuses 'full for good' wide
rm low/filler
drains 'full for good'
same 'full for good: in the end' "$(md5sum <low/wide; cat low/other/small)" "$(cat wide.sum)
x"

# An error of the disk makes the file system read-only: all waits, nothing is lost, and it arrives when it is mounted again.
fresh
session "$rest"'echo new >f; mv d/x other/x; echo made >made; (cd "$2"; sync -f .; mount -o remount,abort . 2>/dev/null); python3 "$work/sync.py" f made; cat f made other/x'
same 'read-only: fsync' "$(sed 's/EIO/EROFS/' got)" $'f EROFS\nmade EROFS\nnew\nmade\nold'
refuses 'read-only' f
umount low && e2fsck -fy disk >said 2>&1
mount -o loop disk low || fail "read-only: not mounted again: $(cat said)"
drains 'read-only'
same 'read-only: in the end' "$(cat low/f low/made low/other/x)" $'new\nmade\nold'

# A directory that was moved away and replaced: its files are written where they are now, or made again at their names.
fresh
session "$rest"'echo new >d/x; echo made >d/made; (cd "$2"; mv d d.old; mkdir d; echo theirs >d/theirs); echo new >f; python3 "$work/sync.py" f d/x d/made; true'
same 'replaced: fsync' "$(grep -c ok <got)" 3
timeout 30 "$bypath" cache drain "$image" >said 2>&1 || { echo "replaced: drain: $(cat said)" && failed=1; }
same 'replaced: all is there' "$(find low -name x -o -name made -o -name theirs | xargs cat | sort -u | grep -vx old)" $'made\nnew\ntheirs'

# An ordinary user: the rights of a directory are taken away, and a quota is reached.
as='setpriv --reuid 65534 --regid 65534 --clear-groups'
fresh
session "$rest"'(cd "$2"; chmod 0 d); echo made >d/made; echo new >f; echo new >other/new; python3 "$work/sync.py" f other/new d/made'
same 'rights: fsync' "$(cat got)" $'f ok\nother/new ok\nd/made EACCES'
same 'rights: the rest is below' "$(cat low/f low/other/new; ls low/d)" $'new\nnew\ne\nx'
refuses 'rights' d/made
chmod 755 low/d
drains 'rights'
same 'rights: in the end' "$(cat low/d/made)" made
if command -v setquota >/dev/null && setquota -u 65534 0 0 0 0 low 2>/dev/null; then
    fresh
    setquota -u 65534 2000 2000 0 0 low
    session "$rest"'head -c 3M /dev/urandom >wide; md5sum <wide >"$work/wide.sum"; chmod 600 g; rm d/x; python3 "$work/sync.py" g d wide'
    same 'quota: fsync' "$(cat got)" $'g ok\nd ok\nwide EDQUOT'
    refuses 'quota' wide
    setquota -u 65534 0 0 0 0 low
    drains 'quota'
    same 'quota: in the end' "$(md5sum <low/wide)" "$(cat wide.sum)"
fi
umount low
exit $failed

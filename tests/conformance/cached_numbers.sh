#!/bin/bash
# own
# needs: git python3 rsync
# seconds: 200
# A file behind a cache has the inode number, and all else that git's index knows files by, that it has in the directory: so
# git reads no file again, neither in a session nor after it. Method: who has read a file's contents is told by its access
# time below, which is older than the file at first; numbers are compared by every call that shows them.
. "$(dirname "$0")/own.sh"
low=$PWD/low at=$PWD/at image=$PWD/c.img
export low at
run() { # OPTIONS COMMAND…
    local options=$1
    shift
    timeout 60 "$bypath" run --no-fuse --mount "host:$low:$at,cache=$image:256M$options" -- "$@"
}
export GIT_CONFIG_NOSYSTEM=1 HOME=$PWD GIT_AUTHOR_NAME=A GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=A GIT_COMMITTER_EMAIL=a@b
# Files whose contents somebody has read since they were last `unread`.
unread() { find "$low" -path '*/.git' -prune -o -type f -exec touch -a -d 1990-01-01 {} +; }
were_read() { (cd "$low" && find . -path ./.git -prune -o -type f -newerat 1991-01-01 -print | sort | tr '\n' ' '); }

mkdir -p low/lib/deep && git -C low init -q
for i in $(seq 40); do echo "$i" | tee "low/f$i" "low/lib/g$i" "low/lib/deep/h$i" >/dev/null; done
ln -s f1 low/link && chmod 755 low/f2 && ln low/f3 low/lib/same
find low -path low/.git -prune -o -exec touch -h -d '2001-02-03 04:05:06.123456789' {} +
# The access time is set before git looks: setting it changes the ctime.
unread
git -C low add -A && git -C low commit -qm all && unread && git -C low status >/dev/null
unread && git -C low update-index -q --refresh
# git's reading the index anew was the last; from here on nothing is touched outside.
find low -path low/.git -prune -o -type f -newerat 1991-01-01 -print | grep -q . && fail "git outside has read files: $(were_read)"
(cd low && find . -printf '%p %i %n %s %m %U %G %T@ %C@\n' | sort) >outside

# All that there is, by stat and by readdir, before and after it is here.
cat >numbers.py <<'P'
import os, sys
seen = {}
for top, dirs, files in os.walk(sys.argv[1]):
    for entry in os.scandir(top):
        stat = os.lstat(entry.path)
        fd = os.open(entry.path, os.O_PATH | os.O_NOFOLLOW)
        numbers = {entry.inode(), stat.st_ino, os.fstat(fd).st_ino}
        os.close(fd)
        if len(numbers) != 1:
            print('not one number:', entry.path, numbers)
        other = seen.setdefault((stat.st_dev, stat.st_ino), (entry.path, stat.st_nlink, stat.st_size))
        if other[0] != entry.path and stat.st_nlink < 2:
            print('one number for two:', entry.path, other)
    dots = {entry.name: entry.inode() for entry in os.scandir(top)}
P
export PYTHONDONTWRITEBYTECODE=1
look='cd "$at" && find . -printf "%p %i %n %s %m %U %G %T@ %C@\n" | sort'
run ,ro bash -c "$look" >first 2>err
same 'as outside, first' "$(diff outside first; cat err)" ''
run ,ro bash -c "$look; ls -di . >&2; python3 ../numbers.py ." >again 2>err
same 'as outside, again' "$(diff outside again)$(cat err)" "$(cd low && ls -di .)"

# The first look of git in a session, with a new image.
rm -f c.img
run '' bash -c 'cd "$at" && git status --porcelain && git diff --stat' >got 2>err
same 'git, the first time' "$(cat got err; were_read)" ''
same 'git, in a session that may not write' "$(rm -f c.img; run ,ro bash -c 'cd "$at" && git status --porcelain' 2>&1; were_read)" ''

# Work in a session; what git reads outside is what has changed.
run '' bash -c 'cd "$at" && echo new >f7 && echo made >made && mkdir box && mv f8 box/f8 && ln f9 also && rm f10 && cp -p f11 copy &&
    git add -A && git commit -qm work && git status --porcelain && cp f12 f12' >got 2>err
same 'a session' "$(cat got; sed s/^cp:// err)" " 'f12' and 'f12' are the same file"
same 'git after it' "$(git -C low status --porcelain; were_read)" './also ./box/f8 ./copy ./f11 ./f7 ./f9 ./made '

# What is made in a session has numbers of its own, which stay when it is below, until the image knows it no more.
run '' bash -c 'cd "$at" && mkdir own && echo 1 >own/a && ln own/a own/b && ln -s a own/l && echo 2 >own/x && mv own/x own/y
    find own -printf "%i %p\n" | sort -k2 >"$low/../one"; sync own/a; sync own/y; find own -printf "%i %p\n" | sort -k2 >"$low/../two"
    find own -samefile own/a | sort | tr "\n" " "; rm f15; echo again >f15; python3 ../numbers.py own' >got 2>err
same 'one file' "$(cat got err)" 'own/a own/b '
same 'after a round' "$(diff one two)" ''
same 'no number of an original' "$(awk '$1 < 2 ^ 52 || $1 >= 2 ^ 53' one)" ''
run '' bash -c 'cd "$at" && find own -printf "%i %p\n" | sort -k2' >three
same 'in another session' "$(diff one three)" ''
"$bypath" check "$image" >said 2>&1 || { cat said && failed=1; }
rm -f c.img
run '' bash -c 'cd "$at" && find own -printf "%i %p\n" | sort -k2' >three
same 'brought anew' "$(diff <(cd low && find own -printf '%i %p\n' | sort -k2) three)" ''

# Another file system below has the same numbers: they are not shown.
mkdir low/other low/other2 && mount -t tmpfs other low/other && mount -t tmpfs other low/other2
for i in $(seq 20); do echo "$i" | tee "low/other/$i" >"low/other2/$i"; done
run '' bash -c 'python3 numbers.py "$at"' >got 2>err
same 'no two with one number' "$(cat got err)" ''
umount low/other low/other2 && rmdir low/other low/other2

# Programs that stay on one file system stay on it; names there are as on a medium that is only read, what is in files is
# written, and nothing waits for a round that can't be. Beside it: the directory itself.
mkdir -p low/plain low/sub && echo b >low/plain/b && mount -t tmpfs sub low/sub && mkdir low/sub/d && echo a >low/sub/a && echo c >low/sub/d/c
cat >across.py <<'P'
import os, sys
def can(what, call, *names):
    try:
        call(*names)
        print(what, *names, 'done')
    except OSError as error:
        print(what, *names, error.strerror)
can('rename', os.rename, 'plain/b', 'sub/b')
can('rename', os.rename, 'sub/d', 'plain/d')
can('rename', os.rename, 'sub', 'elsewhere')
can('rename', os.rename, 'plain', 'sub')
can('rmdir', os.rmdir, 'sub')
can('link', os.link, 'sub/a', 'a')
can('link', os.link, 'plain/b', 'sub/b')
print(os.path.ismount('sub'), os.path.ismount('plain'), os.lstat('sub').st_dev == os.lstat('sub/d/c').st_dev)
if sys.argv[1] == 'names':
    can('rename', os.rename, 'sub/a', 'sub/e')
    can('link', os.link, 'sub/a', 'sub/e')
    can('mkdir', os.mkdir, 'sub/e')
    can('unlink', os.unlink, 'sub/a')
    print(os.access('sub', os.W_OK), os.access('sub/a', os.W_OK), os.access('plain', os.W_OK))
P
one='find . -xdev -path ./.git -prune -o -print | sort; du -axl . | cut -f 2 | grep -v ./.git | sort; rsync -axn --exclude .git --out-format=%n . ../to | sort; python3 ../across.py'
(cd low && bash -c "$one all") >outside 2>&1
run '' bash -c "cd \"\$at\" && $one all" >got 2>&1
same 'on one file system' "$(diff outside got)" ''
run '' bash -c 'cd "$at" && echo more >>sub/a && chmod 700 sub/d/c && echo new >plain/new && python3 ../across.py names | tail -5' >got 2>err
same 'names on another' "$(cat got err)" 'rename sub/a sub/e Read-only file system
link sub/a sub/e Read-only file system
mkdir sub/e Read-only file system
unlink sub/a Read-only file system
False True True'
same 'all of it below' "$(cat low/sub/a low/plain/new | tr '\n' ' ')$(stat -c %a low/sub/d/c; [ -e low/.bypath-cache ] && echo not all)" $'a more new 700'
umount low/sub && rm -r low/plain low/sub

# Programs that were there before the session see the same, by the kernel's mount over the directory.
if [ -e /dev/fuse ]; then
    rm -f c.img
    outside_in "$low"
    timeout 60 "$bypath" run --mount "host:$low:$low,cache=$image:256M" -- bash -c 'cd "$low" && echo mine >mine
        all="find . -path ./.git -prune -o -printf \"%i %p %n\n\" | sort -k2"
        eval "$all" >../direct; outside "$all" >../mounted; python3 ../numbers.py .; outside "python3 ../numbers.py ."
        outside "git status --porcelain"' >got 2>err
    kill "$shell"
    same 'the mount' "$(cat got err; diff direct mounted)" $' M f15\n?? mine\n?? own/'
    same 'and below' "$(diff <(cd low && find . -path ./.git -prune -o -printf '%i %p %n\n' | sort -k2) direct | grep '^[<>]' | grep -vc mine)" 0
fi
exit "$failed"

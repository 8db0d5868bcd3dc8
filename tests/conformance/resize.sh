#!/bin/bash
# `bypath resize` lets an image grow further, or less far: all that is in it stays, what clones share and snapshots too; killed at any
# moment it leaves the image as it was; not while it is used, and not where there is no room.
# own
. "$(dirname "$0")/own.sh"
"$bypath" mkfs i --size 64M >/dev/null
inside() { "$bypath" run --no-fuse -m "i:$work/p" -- bash -ec "cd $work/p; $1"; }
inside '
    mkdir -p a/b s; seq 300000 >a/big; cp --reflink=always a/big a/twin; echo tail >>a/twin; ln a/big a/hard; ln -s b a/link; mkfifo a/fifo
    truncate -s 10M a/hole; printf x | dd of=a/hole bs=1 seek=5000000 conv=notrunc 2>/dev/null
    python3 -c "import os; os.setxattr(\"a/big\", \"user.k\", b\"value\")"
    chown 12:34 a/b; chmod 4711 a/big; touch -h -d 2001-02-03T04:05:06.7 a/b a/link; touch -a -d 2002-01-01 a/twin
    seq 100000 >s/f; ln s/f s/g; chmod 555 s'
"$bypath" snap -q i:/s one
inside 'echo more >>s/f'
"$bypath" clone -q i:/a i:/a2
listed() {
    inside 'find . -printf "%P %y %m %n %U %G %l %s %b %T@ %A@\n" | sort; find . -type f | sort | xargs cksum
        python3 -c "import os; print(os.getxattr(\"a/big\", \"user.k\"), os.stat(\"a/big\").st_ino == os.stat(\"a/hard\").st_ino)"
        touch s/.snap/one/f s/.snap/one/new 2>&1 || true'
    "$bypath" info --json i | grep -E '"(shared|saved)'
}
cp i before
wanted=$(listed)
"$bypath" resize i 300M 2>/dev/null && "$bypath" check i >/dev/null && "$bypath" info --json i | grep -q '"limit": 314572800'
verdict 'resize: larger' $?
same 'all that is in it' "$(listed)" "$wanted"
"$bypath" diff before:/ i:/ >out
verdict 'resize: no difference' $?
"$bypath" resize -q i 20M && "$bypath" check i >/dev/null && "$bypath" resize --json i 64M | grep -q '"before": 20971520'
verdict 'resize: smaller, and back' $?
same 'all that is in it, after more' "$(listed)" "$wanted"
chmod 640 i
for round in 1 2 3 4 5 6 7 8; do
    "$bypath" resize -q i "$((64 + round))M" &
    sleep "0.0$((round * 9))"
    kill -9 $! 2>/dev/null
    wait $! 2>/dev/null
    "$bypath" diff before:/ i:/ >out 2>&1 && "$bypath" check i >/dev/null || { verdict "resize: killed, round $round: $(cat out)" 1 && break; }
done
"$bypath" resize -q i 200M && [ "$(stat -c %a i)" = 640 ] && "$bypath" diff before:/ i:/ && [ ! -e i.resize ]
verdict 'resize: after deaths' $?
inside "'$bypath' resize '$work/i' 300M" >out 2>&1
[ $? -eq 1 ] && grep -q 'processes use it' out
verdict 'resize: not while it is used' $?
ln i j
"$bypath" resize i 300M >out 2>&1
[ $? -eq 1 ] && grep -q 'hard links' out && rm j
verdict 'resize: not one with two names' $?
inside 'head -c 30M /dev/urandom >more'
"$bypath" resize i 16M >out 2>&1
[ $? -eq 1 ] && grep -q 'does not fit' out && [ ! -e i.resize ] && "$bypath" check i >/dev/null
verdict 'resize: what does not fit' $?
mkdir full && mount -t tmpfs -o size=60M t full && cp --sparse=always i full/ && "$bypath" resize full/i 300M >out 2>&1
[ $? -eq 1 ] && grep -q 'are free' out && umount full
verdict 'resize: no room' $?
exit $failed

#!/bin/bash
# `bypath shrink` gives back what an image does not need at its end: files stay, and it grows again; not while it is used.
# own
. "$(dirname "$0")/own.sh"
"$bypath" mkfs i --size 256M >/dev/null
inside() { "$bypath" run --no-fuse -m "i:$work/p" -- sh -ec "cd $work/p; $1"; }
took() { du -m i | cut -f1; }
inside 'mkdir d; seq 20000 >d/f; ln d/f d/g; head -c 100M /dev/zero | tr "\0" x >big'
inside 'rm big'
full=$(took)
"$bypath" shrink i >out && [ "$(took)" -lt $((full - 80)) ]
verdict "shrink: $full MiB before, $(took) now" $?
"$bypath" shrink --json i >out && grep -q '"before"' out && "$bypath" check i >/dev/null
verdict 'shrink: again, and sound' $?
inside 'cmp d/f d/g; tail -1 d/f | grep -qx 20000; head -c 100M /dev/zero | tr "\0" y >big; test "$(tr -d y <big | wc -c)" = 0'
verdict 'shrink: files stay, and it grows again' $?
inside "'$bypath' shrink '$work/i'" >out 2>&1
[ $? -eq 1 ] && grep -q 'processes use it' out
verdict 'shrink: not while it is used' $?
"$bypath" check i >/dev/null
verdict 'shrink: sound in the end' $?
exit $failed

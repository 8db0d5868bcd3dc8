#!/bin/sh
# needs: xz zstd bzip2
# Compressors: in place, kept, tested, several files, modes and times, broken and missing input.
for c in xz zstd bzip2; do
    case $c in zstd) e=zst rm=--rm ;; bzip2) e=bz2 rm= ;; *) e=xz rm= ;; esac
    seq 20000 >$c-a
    head -c 50000 /dev/zero >$c-b
    chmod 640 $c-a
    touch -d @1000000000 $c-a
    cksum $c-a $c-b
    $c -q $rm $c-a $c-b
    echo "exit $?"
    ls $c-*
    stat -c '%a %Y' $c-a.$e
    $c -qt $c-a.$e
    echo "exit $?"
    $c -dc $c-a.$e $c-b.$e | cksum
    $c -qdk $c-a.$e
    ls $c-*
    stat -c '%a %Y' $c-a
    $c -q $c-a 2>/dev/null </dev/null
    echo "exit $?"
    $c -qf $rm $c-a
    head -c 100 $c-a.$e >$c-bad.$e
    $c -qd $c-bad.$e 2>/dev/null
    echo "exit $?"
    ls $c-*
    $c -q none 2>/dev/null
    echo "exit $?"
    $c -c <$c-b.$e | $c -dc | cmp - $c-b.$e
    tar -c --$c -f $c.tar $c-*
    tar -tf $c.tar | wc -l
    rm $c.tar
done

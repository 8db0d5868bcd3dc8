#!/bin/bash
# needs: gzip
# gzip, zcat, zgrep, and bzip2/xz/zstd where they are.
seq 20000 >n
cp n keep
touch -d '2001-01-01 UTC' n
chmod 640 n
gzip n
ls
stat -c '%a %Y %s' n.gz
gzip -l n.gz
zcat n.gz | cmp - keep
gzip -t n.gz
echo $?
gunzip n.gz
cmp n keep
stat -c '%a %Y' n
gzip -k -9 n
gzip -c n | gunzip | cmp - n
gzip -n -f n
sha256sum n.gz
zgrep -c 9 n.gz
zcat <n.gz | tail -1
gzip -d -c n.gz >m
cmp m keep
echo garbage >g.gz
gunzip g.gz
echo $?
gzip n.gz
echo $?
gzip none
echo $?
mkdir d
cp keep d/a
cp keep d/b
gzip -rn d
ls d
gunzip -r d
ls d
cat n.gz n.gz >two.gz
zcat two.gz | wc -l
for tool in bzip2 xz zstd; do
    command -v $tool >/dev/null || continue
    cp keep k
    $tool -q k
    ls k*
    rm -f k
    $tool -q -d k.*
    cmp k keep
    rm -f k*
done

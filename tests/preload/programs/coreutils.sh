#!/bin/sh
# The file programs of coreutils.
mkdir -p a/b/c
seq 1 2000 >a/n
cp a/n a/b/n
cp -p a/n a/b/p
cp -r a z
cp -al a hl 2>&1
ls -R a z hl
head -3 a/n
tail -2 a/n
wc a/n
cat a/n | md5sum
sha1sum a/n z/n
cksum a/n
sort -rn a/n | head -2
uniq a/n | wc -l
split -l 500 a/n part.
ls part.*
cat part.* | cmp - a/n && echo same
tac a/n | head -1
nl a/n | tail -1
od -c a/n | head -2
mv a/b/p a/b/q
mv z/b z/moved
ln a/n hard
ln -s a/n soft
readlink soft
readlink -f soft | sed 's|.*/||'
realpath soft | sed 's|.*/||'
stat -c '%n %s %h %F %a' a/n hard soft
chmod 640 a/n
chmod -R u+x,g-w a/b
stat -c '%a' a/n a/b
touch -d '2001-02-03 04:05:06' t
stat -c %Y t
touch -r t u
stat -c %Y u
date -r t +%F
truncate -s 10K tr
stat -c '%s %b' tr
dd if=a/n of=dd bs=100 count=3 skip=1 2>/dev/null
wc -c <dd
dd if=/dev/zero of=tr bs=1 seek=5000 count=1 conv=notrunc 2>/dev/null
stat -c %s tr
install -d inst/x
install -m 755 a/n inst/x/prog
stat -c %a inst/x/prog
mktemp -p . XXXX | wc -c
rm -f ./????
du -a a | sort -k2 | cut -f2
ls -la a | awk '{print $1, $NF}'
ls -i a/n hard | awk '{print $1}' | uniq | wc -l
dir
vdir a | wc -l
test -f a/n && test -d a && test -L soft && test a/n -ef hard && echo tests
mkdir a 2>&1
rmdir a 2>&1
rm a 2>&1
cp nope x 2>&1
cat a 2>&1
ls nope 2>&1
mkfifo ff
(echo through >ff &)
cat ff
tee t1 t2 <a/n | tail -1
cmp t1 t2 && echo teed
shuf -i 1-3 | sort
comm t1 t2 | wc -l
join t1 t2 | wc -l
paste t1 t2 | head -1
cut -c1 t1 | sort -u | tr '\n' ' '
expand t1 | wc -l
csplit -s t1 5
ls xx*
link a/n lk
unlink lk
shred -u -n1 t2
ls t2 2>&1
sync t1
df --output=target . | wc -l
pwd
chown 0:0 t1 2>&1
basename "$PWD"
rm -rf a z hl
ls
cp -a --sparse=always tr sp
cmp tr sp && echo sparse
cp --reflink=auto tr rl
cmp tr rl
mv -n tr rl
ls tr
mv -f tr rl
ls rl
ls --full-time -d nope 2>&1

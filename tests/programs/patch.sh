#!/bin/bash
# needs: ed patch diff
# Changes made by ed, told by diff, applied by patch forwards and backwards, kept and refused.
mkdir a
seq 40 >a/f
echo x >a/gone
printf 'no end' >a/n
chmod 750 a/f
cp -a a b
ed -s b/f <<'D'
10c
ten
.
20,22d
1i
zero
.
g/3$/s//three/
w
r a/n
w b/copy
q
D
echo "exit $?"
rm b/gone
mkdir b/d
echo new >b/d/new
printf 'an end\n' >b/n
rm b/copy
diff -r a b
echo "exit $?"
diff -ruN a b | sed 's/\t.*//' >p
cksum p
diff -e a/f b/f
diff -y -W 30 a/f b/f | head -3
cp -a a c
patch -s -d c -p1 <p
echo "exit $?"
diff -r b c && echo same
stat -c %a c/f
patch -s -d c -p1 -R <p
diff -r a c && echo back
patch -d c -p1 --dry-run <p
patch -s -b -d c -p1 <p
find c -name '*.orig' | sort
patch -s -N -d c -p1 <p >/dev/null 2>&1
echo "exit $?"
find c -name '*.rej' | sort
find c -name '*.orig' -delete
find c -name '*.rej' -delete
sed 1,5d a/f >off
diff -u a/f b/f | sed 's/\t.*//' | patch -o out off
cksum out
ed -s none <<'D'
q
D
echo "exit $?"
printf 'a\ntext\n.\nw made\n!cat made\nq\n' | ed -s
diff3 -m a/f off b/f | head -4
cmp a/f b/f
sdiff -s a/f b/f | wc -l
rm -f f.orig

#!/bin/sh
# findutils and grep over a tree.
for i in 1 2 3; do
    mkdir -p t/d$i/s
    for j in 1 2 3 4; do
        echo "file $i $j" >t/d$i/f$j
        echo needle$j >t/d$i/s/g$j
    done
done
ln -s d1 t/link
ln -s nowhere t/broken
find t | sort
find t -type f | wc -l
find t -name 'g*' | sort
find t -type l | sort
find -L t -type l
find t -size -1k -type f | wc -l
find t -empty
find t -newer t/d1/f1 2>/dev/null | wc -l >/dev/null
find t -name f1 -exec cat {} \; | sort
find t -name 'f?' -print0 | xargs -0 cat | sort | md5sum
find t -maxdepth 1 -mindepth 1 -printf '%f %y\n' | sort
find t -path '*/s/*' -delete
find t -type d | sort
find t -depth | tail -1
find t -execdir pwd \; | sort -u
find t -ls | wc -l
find nope 2>&1
find t -perm 644 | wc -l
find t -samefile t/d1/f1
find "$PWD/t" -name f2 | sort
grep -r 'file 2' t | sort
grep -rl file t | sort | head -3
grep -c file t/d1/*
grep -rn 4 t --include='f*' | sort
grep nope t/d1/f1
echo $?
grep x nope 2>&1
grep -r file . | wc -l
fgrep -R 'file 1' t | wc -l
ls t | xargs -n1 echo
find t -type f | xargs -P2 -n3 wc -l | awk '{s+=$1} END {print s}'
sed -i 's/file/FILE/' t/d1/*
cat t/d1/*
sed -n 1p t/d2/f1
awk '{print FILENAME, $2}' t/d1/* | sort
awk '{print >"awk.out"}' t/d1/f1
cat awk.out
diff -r t/d1 t/d2
diff -u t/d1/f1 t/d1/f2 | tail -2
echo patched >n
diff -u t/d1/f1 n | sed 's/\t.*//' >p.patch
(cd t/d1 && patch -p0 f1 <../../p.patch) 2>&1
cat t/d1/f1
du -s t >/dev/null && echo du
ls -lR t | grep -c '^d'
rm -rf t
ls

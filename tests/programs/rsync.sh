#!/bin/sh
# needs: rsync
# Trees copied, brought up to date, mirrored, with links to an older copy, in place, by differences.
mkdir -p s/d/e
for i in 1 2 3 4 5; do seq $((i * 300)) >s/d/f$i; done
ln s/d/f1 s/hard
ln -s d/f2 s/sym
chmod 600 s/d/f3
head -c 300000 /dev/zero >s/zero
echo x >s/d/e/x
find s -exec touch -h -d @1000000000 {} +
rsync -aH s/ one
echo "exit $?"
rsync -aHi s/ one
diff -r --no-dereference s one && echo same
[ one/hard -ef one/d/f1 ] && echo linked
stat -c '%n %Y %a' one/d/f3 one/d/e
echo more >>s/d/f4
rm s/d/f5
echo new >s/new
touch -d @1000000100 s/d/f4 s/new
touch -d @1000000000 s s/d
rsync -aHin --delete s/ one | sort
rsync -aH --delete --backup --backup-dir=../old s/ one
ls -R old
diff -r --no-dereference s one && echo same
rsync -aH --link-dest=../one s/ two
[ one/d/f2 -ef two/d/f2 ] && echo linked
sed -i 1s/1/first/ s/d/f4
touch -d @1000000200 s/d/f4
touch -d @1000000000 s/d
rsync -a --no-whole-file --inplace s/ one
cmp s/d/f4 one/d/f4 && cmp s/d/f4 two/d/f4 && echo shared
rsync -rc --no-whole-file --out-format='%n %l' s/ two | sort
rsync -aS s/zero sparse
cmp s/zero sparse
rsync -a --exclude='*.x' --include='*/' --include='f*' --exclude='*' s/ some
find some | sort
rsync -a --remove-source-files old/ moved
find old -type f
rsync -a --files-from=- s list <<L
d/f1
new
L
find list | sort
rsync -a none/ x 2>/dev/null
echo "exit $?"
rsync --delay-updates --partial-dir=.part -a s/ three
ls -A three
rsync -a --stats s/ four | grep -E '^Number of (files|created)'

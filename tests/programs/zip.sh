#!/bin/sh
# needs: zip unzip
# Archives made, changed, tested, unpacked; symbolic links and modes kept.
mkdir -p t/d
seq 1000 >t/n
head -c 100000 /dev/zero >t/d/zero
echo x >t/d/x
ln -s n t/sym
chmod 750 t/d/x
find t -exec touch -h -d @1000000000 {} +
find t | sort | zip -qyX a.zip -@
echo "exit $?"
unzip -l a.zip
unzip -tq a.zip
mkdir o
unzip -q a.zip -d o
diff -r --no-dereference t o/t && echo same
stat -c '%a %Y %n' o/t/d/x
readlink o/t/sym
echo more >>t/n
touch -d @1000000100 t/n
find t | sort | zip -uqyX a.zip -@
echo "exit $?"
unzip -p a.zip t/n | tail -1
zip -qd a.zip 't/d/*'
unzip -Z1 a.zip
zip -qm a.zip o/t/d/x
ls o/t/d
unzip -qo a.zip o/t/d/x
ls o/t/d
unzip -q a.zip none
echo "exit $?"
head -c 500 a.zip >bad.zip
unzip -tq bad.zip >/dev/null 2>&1
echo "exit $?"
zip -q - t/n -X >piped.zip
unzip -p piped.zip | cksum
printf 'in\n' | zip -qX std.zip -
unzip -p std.zip
rm ./*.zip

#!/bin/sh
# needs: cpio
# Archives in three formats, copies of trees with links, modes and times kept.
umask 022
mkdir -p t/d/e
echo one >t/a
seq 500 >t/d/b
ln t/a t/d/hard
ln -s ../a t/d/sym
mkfifo t/p
chmod 711 t/d/e
printf '' >t/empty
touch -d @1000000000 t/a t/d/b t/d t/empty
for format in newc odc crc; do
    find t -depth | sort | cpio -o -H $format --quiet >$format.cpio
    echo "exit $?"
    cpio -it --quiet <$format.cpio | sort
    mkdir $format
    (
        cd $format && cpio -idm --quiet <../$format.cpio && find . -type f -printf '%p %m %n %s %T@\n' | sort && diff -r --no-dereference ../t/d t/d && [ t/a -ef t/d/hard ] && echo linked
        readlink t/d/sym
        [ -p t/p ] && echo fifo
    )
done
mkdir pass
find t -depth | sort | cpio -pdm --quiet pass
diff -r --no-dereference t/d pass/t/d && echo same
find t/a t/d/b | cpio -pdl --quiet pass/l
[ t/a -ef pass/l/t/a ] && echo linked
cpio -id --quiet 't/d/*' <newc.cpio
echo "exit $?"
head -c 300 newc.cpio | cpio -it --quiet 2>&1 | tail -1
rm ./*.cpio

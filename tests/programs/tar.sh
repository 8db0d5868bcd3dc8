#!/bin/bash
# tar and gzip-ed tar: round trips with links, modes, holes, special files, updates; cpio-like listing.
# needs: tar gzip
mkdir -p t/a/b t/empty
seq 5000 >t/n
head -c 100000 /dev/zero >t/zero
echo x >t/a/b/x
ln t/n t/hard
ln -s a/b/x t/sym
ln -s /nowhere t/dangling
mkfifo t/fifo
truncate -s 5M t/hole
echo end | dd of=t/hole bs=1 seek=4000000 conv=notrunc status=none
chmod 4755 t/n
chmod 2750 t/a
chmod 1777 t/empty
name=$(printf 'long%.0s' $(seq 50))
echo long >"t/$name"
touch -d '2001-02-03 04:05:06.7' t/n t/a/b/x
touch -h -d 2002-02-02 t/sym
chown 12:34 t/a/b/x
find t -exec touch -h -d '2003-03-03' {} +
tar -cf t.tar t
echo $?
tar -tf t.tar | sort
mkdir out
tar -xpf t.tar -C out
(cd out && find . -mindepth 1 -printf '%P %y %m %n %U %G %s %T@ %l\n' | sort)
cmp t/n out/t/n
cmp t/hole out/t/hole
tar -czf t.tgz t
tar -tzf t.tgz | wc -l
tar -xzf t.tgz -O t/a/b/x
tar -cSf sparse.tar t/hole
mkdir s
tar -xSf sparse.tar -C s
cmp t/hole s/t/hole
test "$(du -k s/t/hole | cut -f1)" -lt 1000 && echo sparse
tar --sort=name -cf sorted.tar t
sha256sum <sorted.tar
tar -cf - t | tar -df -
echo "diff $?"
echo more >>t/a/b/x
tar -df t.tar 2>&1 | grep -v time | sort
tar -rf t.tar t/a/b/x
tar -uf t.tar t
tar -tf t.tar | wc -l
tar --delete -f t.tar t/n
tar -tf t.tar | wc -l
tar --exclude='*.x' --exclude=t/a -cf ex.tar t
tar -tf ex.tar | sort
tar -C t -cf c.tar .
tar -tf c.tar | sort | head -3
tar -cf rm.tar --remove-files t/a
ls t
tar --format=pax -cf pax.tar t
tar -tf pax.tar | wc -l
tar --xattrs -cf xa.tar t
tar -xf none.tar
echo $?
tar -xf sorted.tar -C out --keep-newer-files 2>/dev/null
tar -xf t.tar --strip-components=1 -C s t/zero
ls s
tar -xf sorted.tar -C out --overwrite
tar -xf sorted.tar -C out --unlink-first
rm -f *.tar *.tgz

#!/bin/sh
# tar and the compressors.
mkdir -p t/a/b
seq 1 5000 >t/n
echo x >t/a/x
ln -s x t/a/l
ln t/n t/a/hard
: >t/empty
chmod 600 t/a/x
truncate -s 100K t/hole
mkfifo t/fifo
touch -d @1000000000 t/n t/a/x t t/a
tar cf t.tar t && tar tf t.tar | sort
tar czf t.tgz t
gzip -l t.tgz | awk 'END{print ($2 > 1000)}'
mkdir o
tar xf t.tar -C o
diff -r --no-dereference -x fifo t o/t && echo same
stat -c '%a %Y %h %F' o/t/a/x o/t/n
stat -c '%a %h %F' o/t/fifo o/t/a/l
tar cf - t | (
    mkdir p
    cd p
    tar xf -
)
ls -R p
tar df t.tar 2>&1
tar xzf t.tgz -C p
tar rf t.tar o/t/n
tar tf t.tar | tail -1
tar cSf s.tar t/hole
tar xf s.tar -C p
cmp t/hole p/t/hole && echo sparse
tar xOf t.tar t/a/x
tar xf nope.tar 2>&1 | head -1
tar --delete -f t.tar t/empty
tar tf t.tar | grep -c empty
gzip -k t/n
gunzip -c t/n.gz | cmp - t/n && echo gz
gzip -d t/n.gz -f
ls t
gzip -9 <t/n | wc -c | awk '{print ($1<30000)}'
zcat nope.gz 2>&1
bzip2 -k t/n 2>/dev/null && bunzip2 -c t/n.bz2 | cmp - t/n && echo bz
xz -k t/n 2>/dev/null && xz -dc t/n.xz | cmp - t/n && echo xz
cd t && tar cf ../u.tar . && tar tf ../u.tar | sort | head -3
cd ..
rm -rf t o p
ls

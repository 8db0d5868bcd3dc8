#!/bin/sh
# needs: busybox
# A static program: the library maps it, or it goes by the kernel mount, where descriptors and working directory come with an
# offset of their own (docs/reference/preload.md), hence `>>`.
b() {
    busybox "$@"
    echo "exit $?"
}
echo in >in
b cat in
b sh -c 'echo out >out; mkdir -p d/e; cd d; pwd | wc -l; echo x >e/x; cp e/x y; mv y z; ls'
cat out d/z
b cat <in
b sh -c 'cat; echo more' <in >>o2
cat o2
(
    echo a
    b echo b
    echo c
) >>o3
cat o3
cd d || exit
b ls
b stat -c %s z
cd ..
cp "$(command -v busybox)" busybox-copy
chmod 755 busybox-copy
./busybox-copy echo from inside
./busybox-copy sh -c './busybox-copy cat in; ./busybox-copy tar -cf t.tar d; ./busybox-copy tar -tf t.tar | sort'
tar -tf t.tar | sort
ln -s busybox-copy ls
./ls d
printf '#!./busybox-copy sh\necho script $0\n' >s
chmod 755 s
./s
seq 1000 | busybox gzip >n.gz
gzip -dc n.gz | cksum
busybox find d -type f | sort
b sed -i s/in/changed/ in
cat in
exec 3<in
read -r line <&3
b sh -c 'cat <&3'
busybox grep -r x d | sort
b rm -r d
ls -d d 2>&1
b diff in out
b vi -c q! in >/dev/null 2>&1
b touch a/b
b ln in hard
stat -c %h in
b dd if=in of=dd bs=1 count=3 2>/dev/null
cat dd
rm busybox-copy t.tar n.gz ls

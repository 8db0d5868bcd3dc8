#!/bin/bash
# needs: dd
# Seeks, holes, kept tails, synced and appended blocks, short reads, character conversions.
seq 5000 >in
dd() {
    command dd status=none "$@"
    echo "exit $?"
}
dd if=in of=a bs=1000
cmp in a
dd if=in of=a bs=100 count=3 seek=7 conv=notrunc
cksum a
dd if=in of=b bs=1k seek=100 count=1 conv=fsync
stat -c %s b
cksum b
dd if=in of=b bs=7 skip=3 count=5 seek=2 conv=notrunc,fdatasync
cksum b
dd if=in of=c bs=512 conv=sync oflag=dsync count=3
dd if=in of=c bs=512 count=1 oflag=append conv=notrunc
stat -c %s c
dd if=/dev/zero of=sparse bs=64k count=4 conv=sparse
stat -c %s sparse
dd if=in of=in bs=10 count=0 seek=5 conv=notrunc
wc -c <in
dd if=/dev/null of=t bs=1 seek=12345
stat -c %s t
dd if=in of=x conv=excl count=1
dd if=in of=x conv=excl 2>/dev/null
dd if=in of=none conv=nocreat 2>/dev/null
dd if=in bs=1 skip=20 count=6 conv=ucase
dd if=none of=y 2>/dev/null
dd if=in of=swab conv=swab
head -1 swab | od -c | head -2
(
    sleep 0.01
    echo a
    sleep 0.02
    echo b
) | dd of=pipe bs=64k iflag=fullblock
cat pipe
dd if=in bs=3 count=2 skip=1B iflag=skip_bytes 2>/dev/null | od -c
dd if=in of=d bs=4096 count=1 iflag=directory 2>/dev/null
dd if=in of=nofollow oflag=nofollow count=1
ln -s in l
dd if=l iflag=nofollow of=m 2>/dev/null
{
    dd bs=5 count=1
    dd bs=5 count=1
} <in
exec 3<>a
dd bs=10 count=1 seek=1 <in >&3
dd bs=4 count=1 <&3
cksum a
truncate -s 3 a
dd if=a skip=9
fallocate -l 10000 pre
dd if=in of=pre bs=100 count=2 conv=notrunc
cksum pre

#!/bin/sh
# needs: fio
# way: kernel
# ignore: /j-
# io_uring and Linux AIO, which know the kernel's descriptors only; then one file written through a ring and by calls at once, each half
# looked over by the other way.
cat >jobs <<'J'
[global]
size=512k
bs=4k
verify=crc32c
verify_fatal=1
verify_state_save=0
randseed=7
iodepth=8
J
for engine in io_uring libaio; do
    for rw in write randwrite; do printf '[j-%s-%s]\nioengine=%s\nrw=%s\n' $engine $rw $engine $rw; done
done >>jobs
fio --minimal jobs >out 2>&1
echo "exit $?"
grep -i -E 'verify:|error' out
grep -c '^3;fio' out
ls
half() { printf '[half-%s]\nfilename=j-both\nioengine=%s\nrw=write\nsize=512k\noffset=%s\n' "$1" "$2" "$1"; }
sed -i '/^\[j-/,$d; /^size/d' jobs
cp jobs look
{
    echo do_verify=0
    half 0 io_uring
    half 512k psync
} >>jobs
{
    echo verify_only=1
    half 0 psync
    half 512k io_uring
} >>look
for job in jobs look; do
    fio --minimal $job >out 2>&1
    echo "$job: exit $?"
    grep -i -E 'verify:|error' out
done
rm out
ls -s --block-size=1 j-both

#!/bin/sh
# needs: fio
# ignore: /j-
# Random and sequential writes by four engines of its own, by several processes, read back and compared by their checksums.
cat >jobs <<'J'
[global]
size=512k
bs=4k
verify=crc32c
verify_fatal=1
verify_state_save=0
randseed=7
J
for engine in sync psync pvsync mmap; do
    for rw in write randwrite randrw; do printf '[j-%s-%s]\nioengine=%s\nrw=%s\n' $engine $rw $engine $rw; done
done >>jobs
printf '[j-many]\nnumjobs=3\nioengine=psync\nrw=randwrite\nfsync=16\nnrfiles=4\nfallocate=keep\n[j-gone]\nioengine=psync\nrw=write\nunlink=1\n' >>jobs
fio --minimal jobs >out 2>&1
echo "exit $?"
grep -i -E 'verify:|error' out
grep -c '^3;fio' out
rm out
ls
rm j-*-rand*

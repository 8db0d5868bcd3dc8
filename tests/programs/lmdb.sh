#!/bin/sh
# needs: mdb_load mdb_dump mdb_stat mdb_copy awk
# ignore: lock\.mdb$
# LMDB: a map of 64 MiB over a file that grows under it, read by other processes meanwhile, copied, compacted, dropped and filled again.
load() { # FIRST LAST
    {
        printf 'VERSION=3\nformat=print\ntype=btree\nmapsize=67108864\nmaxreaders=126\nHEADER=END\n'
        awk -v a="$1" -v b="$2" 'BEGIN { for (i = a; i < b; i++) printf " key %07d\n value %d %0*d\n", i * 7919 % 1000003, i, i % 300, i; print "DATA=END" }'
    } | mdb_load ${3:+$3} db
}
sums() { mdb_dump db | grep -v '^db_pagesize\|^mapaddr' | cksum; }
mkdir db copy
load 0 2000
sums
mdb_stat -e db | grep -v Number.of.readers
for i in 1 2 3; do (for j in 1 2 3 4; do mdb_dump db >/dev/null || echo "reader $i: exit $?"; done) & done
load 2000 9000
wait
sums
mdb_copy db copy
mdb_stat copy | grep Entries
mdb_copy -c db - >compact
ls -s --block-size=1 compact | wc -l
mdb_dump db | grep -c 'value 5'
mdb_dump -l db
rm compact
for i in 1 2 3; do load $((i * 10000)) $((i * 10000 + 500)) & done
wait
sums
mdb_stat db | grep Entries
ls db copy
rm db/data.mdb copy/data.mdb

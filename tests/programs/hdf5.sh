#!/bin/sh
# needs: h5import h5repack h5dump h5diff h5copy h5jam
# Data sets made, compressed, copied, compared; the library locks its files.
seq -s ' ' 1 20000 >numbers
import() { h5import numbers -d 200,100 -p "$1" -t TEXTIN -s 32 -o "$2"; }
import /group/first a.h5
import /second b.h5
h5copy -i b.h5 -o a.h5 -s /second -d /group/second
h5repack -f GZIP=6 -l CHUNK=50x50 a.h5 c.h5
h5diff a.h5 c.h5 && echo same
h5dump -d '/group/second[10,10;2,2;3,3]' c.h5
h5dump -H c.h5
echo 'a user block' >block
h5jam -u block -i c.h5 -o d.h5
h5diff c.h5 d.h5 && echo same
head -c 12 d.h5
[ "$(stat -c %s c.h5)" -lt "$(stat -c %s a.h5)" ] && echo smaller
rm -f ./*.h5

#!/bin/sh
# needs: ccache gcc
# A compiler behind a cache: found and not found, by preprocessing and directly, a header changed, several at a time.
export CCACHE_DIR=$PWD/cache CCACHE_NOHASHDIR=1 CCACHE_BASEDIR=$PWD CCACHE_SLOPPINESS=include_file_mtime,include_file_ctime
echo '#define N 1' >n.h
for i in 1 2 3 4 5 6; do printf '#include "n.h"\n#include <stdio.h>\nint f%s(void) { return N + %s; }\n' $i $i >$i.c; done
build() { for i in 1 2 3 4 5 6; do ccache gcc -O1 -c $i.c -o $i.o & done; wait; }
stats() { ccache --print-stats | grep -E '^(direct_cache_hit|preprocessed_cache_hit|cache_miss|files_in_cache)\b' | sort; }
build; stats
rm ./*.o; build; stats
echo '#define N 2' >n.h
build; stats
CCACHE_NODIRECT=1 build; stats
CCACHE_HARDLINK=1 ccache gcc -c 1.c -o hard.o; ls hard.o
CCACHE_READONLY=1 ccache gcc -c 2.c -o ro.o; ls ro.o
echo 'int main(void) { return f1() != 3; } int f1(void);' | sed 's/^/int f1(void); /' >m.c
ccache gcc -c m.c -o m.o && gcc m.o 1.o -o m && ./m
echo "runs $?"
ccache -c >/dev/null; ccache -C >/dev/null; ccache -z >/dev/null; stats
rm -rf cache ./*.o m

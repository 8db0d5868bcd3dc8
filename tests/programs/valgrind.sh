#!/bin/sh
# needs: valgrind cc
# way: kernel
# Programs in the image under memcheck: what it reports, and the files it writes.
cat >leak.c <<'C'
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
int main(void) {
    int fd = open("data", O_RDWR | O_CREAT, 0644);
    char *kept = malloc(24), buffer[8];
    ftruncate(fd, 4096);
    char *map = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    map[7] = 'x';
    if (pread(fd, buffer, 8, 0) == 8 && buffer[7] == 'x') write(1, "read\n", 5);
    write(fd, kept, 24);
    kept = 0;
    return 0;
}
C
cc -g -o leak leak.c 2>/dev/null
valgrind --leak-check=full --log-file=log ./leak
grep -c 'points to uninitialised' log
grep -o 'definitely lost: .*' log
grep -o 'ERROR SUMMARY: .*' log
seq 3000 | valgrind -q --log-file=sort.log sort -S32b -T . | cksum
cat sort.log
rm -f log leak

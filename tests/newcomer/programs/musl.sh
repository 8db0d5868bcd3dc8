#!/bin/sh
# needs: musl-gcc
# ignore: ^./(static|dynamic)$
# A program in C by musl, static and not, whose threads write, map, list and rename; built and run in the tree.
cat >m.c <<'C'
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
enum { THREADS = 8, FILES = 50 };
static void *work(void *number) {
    long n = (long)number;
    char name[64], other[64];
    for (int i = 0; i < FILES; i++) {
        snprintf(name, sizeof name, "d/%ld-%d", n, i);
        snprintf(other, sizeof other, "d/%ld-%d.done", n, i);
        FILE *f = fopen(name, "w");
        if (!f || fprintf(f, "%ld %d\n", n, i) < 0 || fclose(f)) return "stdio";
        int fd = open(name, O_RDWR);
        if (fd < 0 || ftruncate(fd, 8192)) return "open";
        char *p = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (p == MAP_FAILED) return "mmap";
        p[8191] = 'e';
        munmap(p, 8192);
        char c;
        if (pread(fd, &c, 1, 8191) != 1 || c != 'e' || close(fd)) return "pread";
        if (rename(name, other)) return "rename";
    }
    return 0;
}
int main(void) {
    pthread_t t[THREADS];
    void *end;
    mkdir("d", 0755);
    for (long n = 0; n < THREADS; n++) pthread_create(&t[n], 0, work, (void *)n);
    for (int n = 0; n < THREADS; n++) {
        pthread_join(t[n], &end);
        if (end) printf("thread %d: %s\n", n, (char *)end);
    }
    int count = 0;
    DIR *d = opendir("d");
    while (readdir(d)) count++;
    closedir(d);
    printf("%d names\n", count - 2);
    fflush(stdout);
    pid_t child = fork();
    if (!child) _exit(access("d/7-49.done", R_OK) != 0);
    int status;
    waitpid(child, &status, 0);
    printf("child %d\n", status);
    fflush(stdout);
    execlp("cat", "cat", "m.c", (char *)0);
    return 1;
}
C
musl-gcc -O1 -static -o static m.c && musl-gcc -O1 -o dynamic m.c
echo "built $?"
for program in static dynamic; do
    ./$program | cksum
    ./$program | head -2
    rm -r d
done

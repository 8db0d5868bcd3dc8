#!/bin/bash
# ways: short both patched
# always: patched
# needs: cc python3
# System calls by a library's own instructions: one that a program needs, one that it opens, in a thread, with calls of the
# program's own beside them; a library in the file system itself.
dir=$(mktemp -d /tmp/bypath-own.XXXXXX) || exit 1
trap 'rm -rf "$dir"' EXIT
cat >"$dir/raw.h" <<'C'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
static inline __attribute__((always_inline)) long raw(long n, long a, long b, long c, long d) {
    long r;
    register long r10 asm("r10") = d;
    asm volatile("syscall" : "=a"(r) : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
    return r;
}
C
cat >"$dir/lib.c" <<'C'
#include "raw.h"
long NAME(const char *path) {
    long fd = raw(SYS_openat, AT_FDCWD, (long)path, O_CREAT | O_RDWR | O_APPEND, 0644);
    if (fd < 0) return fd;
    long n = raw(SYS_write, fd, (long)"text", 4, 0);
    raw(SYS_close, fd, 0, 0, 0);
    struct stat st;
    return stat(path, &st) ? -1 : n + st.st_size;
}
C
cat >"$dir/main.c" <<'C'
#include "raw.h"
typedef long Make(const char *);
#ifdef NEEDS
Make needed;
#endif
static Make *opened;
static void *thread(void *path) { return (void *)opened(path); }
int main(int c, char **v) {
#ifdef NEEDS
    printf("needed %ld\n", needed("by-needed"));
#endif
#ifdef OWN
    printf("own %ld\n", raw(SYS_mkdirat, AT_FDCWD, (long)"by-own", 0755, 0));
#endif
    for (int i = 1; i < c; i++) {
        void *library = dlopen(v[i], RTLD_NOW);
        if (!library) return puts("not opened"), 1;
        opened = (Make *)dlsym(library, "opened");
        printf("opened %ld\n", opened("by-opened"));
        pthread_t t;
        void *r;
        pthread_create(&t, 0, thread, "by-thread");
        pthread_join(t, &r);
        printf("thread %ld\n", (long)r);
    }
#ifdef OWN
    printf("own %ld\n", raw(SYS_renameat2, AT_FDCWD, (long)"by-own", AT_FDCWD, (long)"renamed"));
    rmdir("renamed");
#endif
    return 0;
}
C
build() { cc -O1 -w -fPIC "$@" -lpthread || exit 1; }
build -shared -DNAME=needed -o "$dir/libneeded.so" "$dir/lib.c"
build -shared -DNAME=opened -o "$dir/opened.so" "$dir/lib.c"
build -shared -Wl,--build-id=none -DNAME=opened -o "$dir/another.so" "$dir/lib.c"
build -o "$dir/plain" "$dir/main.c"
build -DNEEDS -o "$dir/needs" "$dir/main.c" -L"$dir" -lneeded -Wl,-rpath,"$dir"
build -DOWN -o "$dir/own" "$dir/main.c"
cp "$dir/opened.so" .
for round in 1 2; do
    echo "a library that is needed"
    "$dir/needs"
    echo "one that is opened, another one"
    "$dir/plain" "$dir/opened.so" "$dir/another.so"
    echo "by the program and a library"
    "$dir/own" "$dir/opened.so"
    echo "one that lies here"
    "$dir/plain" ./opened.so
done
python3 -c 'import ctypes, sys; print(ctypes.CDLL(sys.argv[1]).opened(b"by-python"))' "$dir/opened.so"
cat by-needed by-opened by-thread by-python | wc -c

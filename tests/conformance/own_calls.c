// ways: short both kernel patched
// always: patched
// A program that opens files by the C library and goes on with system calls of its own, as Rust's rustix does; and a
// child of it that does not.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
static inline __attribute__((always_inline)) long raw(long n, long a, long b, long c, long d, long e) {
    long r;
    register long r10 asm("r10") = d, r8 asm("r8") = e;
    asm volatile("syscall" : "=a"(r) : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8) : "rcx", "r11", "memory");
    return r;
}
int main(void) {
    int fd = open("t", O_CREAT | O_RDWR, 0644);
    struct stat st;
    char b[9] = {0};
    printf("write %ld\n", raw(SYS_write, fd, (long)"data", 4, 0, 0));
    printf("renameat2 %ld\n", raw(SYS_renameat2, AT_FDCWD, (long)"t", AT_FDCWD, (long)"kept", 1));
    printf("lseek %ld\n", raw(SYS_lseek, fd, 0, 0, 0, 0));
    long length = raw(SYS_read, fd, (long)b, 8, 0, 0);
    printf("read %ld %s\n", length, b);
    int result = stat("kept", &st);
    printf("stat %d size %ld\n", result, (long)st.st_size);
    long g = raw(SYS_openat, AT_FDCWD, (long)"kept", O_RDWR, 0, 0);
    printf("openat %d\n", g >= 0 ? 0 : (int)g);
    printf("fstat of it %d\n", g >= 0 ? fstat(g, &st) : -1);
    printf("mkdirat %ld unlinkat %ld\n", raw(SYS_mkdirat, AT_FDCWD, (long)"d", 0755, 0, 0), raw(SYS_unlinkat, AT_FDCWD, (long)"kept", 0, 0, 0));
    printf("ftruncate %ld fsync %ld\n", raw(SYS_ftruncate, fd, 2, 0, 0, 0), raw(SYS_fsync, fd, 0, 0, 0, 0));
    fflush(stdout);
    return system("echo child >child; cat child; pwd | grep -c /w$");
}

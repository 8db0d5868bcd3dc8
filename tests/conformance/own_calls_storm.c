// ways: short both patched
// always: patched
// flags: -pthread
// seconds: 120
// Threads with system calls of their own on files while signals come all the time, whose handlers make such calls too and
// in one thread leave by siglongjmp; children by fork and vfork meanwhile.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
static inline __attribute__((always_inline)) long raw(long n, long a, long b, long c, long d) {
    long r;
    register long r10 asm("r10") = d;
    asm volatile("syscall" : "=a"(r) : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
    return r;
}
static atomic_long failed, handled, number;
static atomic_int end;
#define must(is) do { if (!(is)) atomic_fetch_add(&failed, 1), fprintf(stderr, "line %d\n", __LINE__); } while (0)
static void make(int dir, int n) {
    char a[32], b[32], text[8] = {0};
    sprintf(a, "a%d", n), sprintf(b, "b%d", n);
    long fd = raw(SYS_openat, dir, (long)a, O_CREAT | O_EXCL | O_RDWR, 0600);
    must(fd >= 0);
    must(raw(SYS_write, fd, (long)a, 2, 0) == 2);
    must(raw(SYS_renameat2, dir, (long)a, dir, (long)b) == 0);
    must(raw(SYS_pread64, fd, (long)text, 2, 0) == 2 && text[0] == 'a');
    must(raw(SYS_close, fd, 0, 0, 0) == 0);
    must(raw(SYS_unlinkat, dir, (long)b, 0, 0) == 0);
}
static int handlers_dir;
static void handler(int n) {
    make(handlers_dir, 1000000 + atomic_fetch_add(&number, 1));
    atomic_fetch_add(&handled, 1);
}
static void *works(void *p) {
    char name[16];
    sprintf(name, "d%ld", (long)p);
    must(raw(SYS_mkdirat, AT_FDCWD, (long)name, 0700, 0) == 0);
    long dir = raw(SYS_openat, AT_FDCWD, (long)name, O_RDONLY | O_DIRECTORY, 0);
    for (int i = 0; i < 1500; i++) make(dir, i);
    raw(SYS_close, dir, 0, 0, 0);
    return 0;
}
static sigjmp_buf back;
static void leaves(int n) { siglongjmp(back, 1); }
static void *jumps(void *p) {
    struct stat st;
    sigset_t set;
    sigemptyset(&set), sigaddset(&set, SIGUSR2), pthread_sigmask(SIG_UNBLOCK, &set, 0);
    for (volatile int i = 0; i < 3000; i++) {
        if (sigsetjmp(back, 1)) continue;
        raw(SYS_tkill, raw(SYS_gettid, 0, 0, 0, 0), SIGUSR2, 0, 0);
        must(0);
    }
    must(raw(SYS_newfstatat, AT_FDCWD, (long)".", (long)&st, 0) == 0);
    return 0;
}
static void *sends(void *p) {
    while (!end) {
        for (int i = 0; i < 6; i++) raw(SYS_kill, getpid(), i & 1 ? SIGUSR1 : SIGRTMIN, 0, 0);
        usleep(200);
    }
    return 0;
}
int main(void) {
    pthread_t all[4], jumper, sender;
    mkdir("h", 0700);
    handlers_dir = open("h", O_RDONLY | O_DIRECTORY);
    sigset_t set;
    sigemptyset(&set), sigaddset(&set, SIGUSR2), pthread_sigmask(SIG_BLOCK, &set, 0);
    struct sigaction a = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigfillset(&a.sa_mask);
    sigaction(SIGUSR1, &a, 0), sigaction(SIGRTMIN, &a, 0);
    signal(SIGUSR2, leaves);
    for (long i = 0; i < 4; i++) pthread_create(&all[i], 0, works, (void *)i);
    pthread_create(&jumper, 0, jumps, 0);
    pthread_create(&sender, 0, sends, 0);
    for (int i = 0; i < 40; i++) {
        int status = -1;
        long pid = i % 2 ? vfork() : raw(SYS_fork, 0, 0, 0, 0);
        if (!pid) {
            if (i % 2) execl("/bin/true", "true", (char *)0), _exit(9);
            signal(SIGUSR1, SIG_IGN), signal(SIGRTMIN, SIG_IGN);
            make(handlers_dir, 2000000 + i);
            raw(SYS_exit_group, failed != 0, 0, 0, 0);
        }
        must(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
    }
    for (int i = 0; i < 4; i++) pthread_join(all[i], 0);
    pthread_join(jumper, 0);
    end = 1;
    pthread_join(sender, 0);
    printf("failed %ld, handlers %d\n", failed, handled > 100);
    return 0;
}

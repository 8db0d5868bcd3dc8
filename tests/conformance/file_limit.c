// RLIMIT_FSIZE, however it is set in the process, binds every call that makes a file longer, and its children.
// ways: short both patched kernel host cached
// needs: prlimit
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int fd, other;

static void told(const char *what, long result) { printf("%s: %ld %s\n", what, result, result < 0 ? strerror(errno) : ""); }

static void writes(const char *what) {
    static char block[2000];
    ftruncate(fd, 0);
    told(what, pwrite(fd, block, sizeof block, 0));
}

static void outside(const char *limit) {
    char command[99];
    sprintf(command, "prlimit --pid %d --fsize=%s:unlimited", getpid(), limit);
    system(command);
}

int main(void) {
    struct rlimit none, limit;
    setvbuf(stdout, 0, _IOLBF, 0);
    signal(SIGXFSZ, SIG_IGN);
    fd = open("f", O_CREAT | O_RDWR, 0644), other = open("g", O_CREAT | O_RDWR, 0644);
    getrlimit(RLIMIT_FSIZE, &none);
    limit = none;
    writes("none");
    limit.rlim_cur = 1000, setrlimit(RLIMIT_FSIZE, &limit), writes("setrlimit 1000");
    limit.rlim_cur = 1500, setrlimit(RLIMIT_FSIZE, &limit), writes("setrlimit 1500");
    setrlimit(RLIMIT_FSIZE, &none), writes("lifted");
    limit.rlim_cur = 1200, prlimit(0, RLIMIT_FSIZE, &limit, 0), writes("prlimit 1200");
    prlimit(getpid(), RLIMIT_FSIZE, &none, 0), writes("lifted");
    limit.rlim_cur = 1300, setrlimit64(RLIMIT_FSIZE, (void *)&limit), writes("setrlimit64 1300");
    syscall(SYS_setrlimit, RLIMIT_FSIZE, &none), writes("syscall lifted");
    limit.rlim_cur = 1400, syscall(SYS_prlimit64, 0, RLIMIT_FSIZE, &limit, 0), writes("syscall 1400");
    outside("1600"), writes("1600 from outside");
    if (fork() == 0) {
        writes("child");
        setrlimit(RLIMIT_FSIZE, &none), writes("child lifted");
        _exit(0);
    }
    wait(0);
    writes("parent still");
    outside("unlimited"), writes("lifted from outside");
    limit.rlim_cur = 1000, setrlimit(RLIMIT_FSIZE, &limit);
    off_t at = 0;
    told("sendfile", sendfile(other, fd, &at, 1500));
    told("sendfile at it", sendfile(other, fd, &at, 1500));
    at = 0;
    off_t to = 990;
    told("copy_file_range", copy_file_range(fd, &at, other, &to, 1000, 0));
    told("ftruncate", ftruncate(other, 1001));
    told("truncate", truncate("g", 5000));
    told("fallocate", posix_fallocate(other, 0, 2000));
    told("lseek", lseek(other, 2000, SEEK_SET));
    told("write", write(other, "x", 1));
    return 0;
}

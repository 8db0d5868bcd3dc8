// Memory that is not there: buffers that end in the middle, in an unmapped page, a page without rights or one that may only
// be read; texts that run into such a page; arrays and structures across its border. Every call answers EFAULT, or with
// how much it has moved, and leaves the file as a kernel's file system does, whatever the program does with the signals.
// ways: short both patched kernel host cached fuse
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <utime.h>

enum { PAGE = 4096, PAGES = 4, BEHIND = 16 };
static char *end; // behind the last byte that is there
static int fd, dir, pipes[2], read_only;

static void said(const char *what, long result) {
    printf("  %s = %ld%s%s\n", what, result, result < 0 ? " " : "", result < 0 ? strerrorname_np(errno) : "");
}
#define R(call) (errno = 0, said(#call, (long)(call)))
// With zeros in what is there.
#define S(call) (memset(at, 0, before), R(call))

// A text of `len` bytes whose NUL would be the first byte that is not there.
static char *text(const char *name, int len) {
    char *at = end - len;
    memset(at, 'n', len);
    memcpy(at, name, strlen(name) < len ? strlen(name) : len);
    return at;
}

static void content(void) {
    static char all[1 << 20];
    long len = pread(fd, all, sizeof all, 0), sum = 0;
    for (long i = 0; i < len; i++) sum = sum * 31 + (unsigned char)all[i];
    printf("  file: %ld bytes, sum %lx, at %ld\n", len, sum, (long)lseek(fd, 0, SEEK_CUR));
}

static void texts(const char *name, int len) {
    struct stat st;
    char room[8];
    R(open(text(name, len), O_RDONLY));
    R(open(text(name, len), O_RDWR | O_CREAT, 0644));
    R(openat(dir, text(name, len), O_RDONLY));
    R(stat(text(name, len), &st));
    R(lstat(text(name, len), &st));
    R(access(text(name, len), F_OK));
    R(faccessat(dir, text(name, len), R_OK, AT_EACCESS));
    R(chmod(text(name, len), 0600));
    R(lchown(text(name, len), 1, 1));
    R(mkdir(text(name, len), 0755));
    R(rmdir(text(name, len)));
    R(unlink(text(name, len)));
    R(unlinkat(dir, text(name, len), 0));
    R(mknod(text(name, len), S_IFREG | 0644, 0));
    R(truncate(text(name, len), 0));
    R(link("f", text(name, len)));
    R(link(text(name, len), "g"));
    R(rename("f", text(name, len)));
    R(rename(text(name, len), "g"));
    R(symlink("f", text(name, len)));
    R(symlink(text(name, len), "g"));
    R(readlink(text(name, len), room, 8));
    R(chdir(text(name, len)));
    R(utimensat(dir, text(name, len), NULL, 0));
    R(setxattr(text(name, len), "user.x", "x", 1, 0));
    R(setxattr("f", text("user.", len), "x", 1, 0));
    R(getxattr("f", text("user.", len), room, 8));
    R(removexattr("f", text("user.", len)));
    R(statfs(text(name, len), (struct statfs[1]){0}));
    R(execv(text(name, len), (char *[]){"x", NULL}));
}

static void moves(int before, int len) {
    char *at = end - before;
    struct iovec two[2] = {{"abcdefgh", 8}, {at, len}}, three[3] = {{at, before}, {at, len}, {"zzz", 3}};
    char first[8];
    struct iovec into[2] = {{first, 8}, {at, len}};
    printf(" %d of %d bytes\n", before, len);
    memset(at, 'w', before);
    lseek(fd, 0, SEEK_SET);
    R(read(fd, at, len));
    R(pread(fd, at, len, 100));
    R(preadv(fd, into, 2, 0));
    content();
    if (before) memset(at, 'w', before);
    R(pwrite(fd, at, len, 5000));
    content();
    R(write(fd, at, len));
    content();
    R(pwritev(fd, two, 2, 9000));
    R(writev(fd, three, 3));
    content();
    // Beyond the end; not with nothing to write: tmpfs then leaves a larger file.
    if (before) R(pwrite(fd, at, len, 30000));
    content();
    int append = open("f", O_WRONLY | O_APPEND);
    R(write(append, at, len));
    R(write(append, end - before, before));
    content();
    close(append);
    int fresh = open("fresh", O_RDWR | O_CREAT | O_TRUNC, 0644);
    R(write(fresh, at, len));
    R(ftruncate(fresh, 100000));
    R(pwrite(fresh, at, len, 50000));
    R(pread(fresh, at, len, 60000)); // a hole
    R(lseek(fresh, 0, SEEK_END));
    close(fresh);
    unlink("fresh");
    R(ftruncate(fd, 12000));
}

static void structures(int before) {
    char *at = end - before;
    fd_set *set = (fd_set *)(end - before / 8 * 8);
    printf(" structures, %d bytes of them\n", before);
    S(stat("f", (void *)at));
    S(lstat("f", (void *)at));
    S(fstat(fd, (void *)at));
    S(stat(".", (void *)at));
    S(stat("missing", (void *)at));
    S(statx(dir, "f", 0, STATX_ALL, (void *)at));
    S(statfs("f", (void *)at));
    S(fstatfs(fd, (void *)at));
    S(syscall(SYS_getcwd, at, 400) == -1 ? -1 : 0);
    S(readlink("link", at, 100));
    S(syscall(SYS_getdents64, dir, at, 1000) >= 0 ? 0 : -1);
    lseek(dir, 0, SEEK_SET);
    S(writev(fd, (void *)at, 4));
    S(preadv(fd, (void *)at, 4, 0));
    S(utimensat(dir, "f", (void *)at, 0));
    S(getxattr("f", "user.long", at, 1000));
    S(listxattr("f", at, 1000));
    S(setxattr("f", "user.other", at, 500, 0));
    S(fcntl(fd, F_GETLK, at));
    S(fcntl(fd, F_SETLK, at));
    S(ioctl(fd, FIONREAD, end - before % 4));
    S(poll((void *)at, 100, 0));
    S(select(1000, set, NULL, NULL, &(struct timeval){0}));
    // Where it copies at all: not from every lower file system.
    if (!read_only) S(copy_file_range(fd, (void *)(end - before % 8), fd, &(off_t){100000}, 10, 0));
    S(sendfile(fd, fd, (void *)(end - before % 8), 10));
    R(read(pipes[0], at, before + 1));
    R(write(pipes[1], end, 4));
}

static void all(const char *how, int prot) {
    char *base = mmap(NULL, (PAGES + BEHIND) * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    end = base + (PAGES - 1) * PAGE;
    mprotect(end + PAGE, BEHIND * PAGE, PROT_NONE);
    if (prot < 0)
        munmap(end, PAGE);
    else
        mprotect(end, PAGE, prot);
    printf("%s\n", how);
    read_only = prot == PROT_READ;
    static char data[12000];
    memset(data, 'd', sizeof data);
    ftruncate(fd, 0);
    pwrite(fd, data, sizeof data, 0);
    int sizes[][2] = {{6, 100},    {0, 10},      {1, 2},       {15, 16},      {20, 31},   {40, 64},
                      {64, 200},   {300, 512},   {1000, 2000}, {4096, 8192}, {4097, 9000}, {12000, 40000}};
    for (int i = 0; i < sizeof sizes / sizeof *sizes; i++) moves(sizes[i][0], sizes[i][1]);
    for (int i = 0; i < 200; i += i < 8 ? 7 : 24) structures(i);
    if (prot == PROT_READ) return; // texts are only read
    char *names[] = {"f", "", "./f", "d/", "d/f", "/", "n/../f", "//"};
    char here[PAGE], long_one[PAGE];
    getcwd(here, sizeof here);
    for (int i = 0; i < 8; i++)
        for (int len = strlen(names[i]); len < 60; len = len < 3 ? len + 1 : len * 2 + 1) {
            printf(" text %s, %d bytes\n", names[i], len);
            texts(names[i], len);
        }
    // Absolute, with the border at each of the first bytes and behind the mount point.
    snprintf(long_one, sizeof long_one, "%s/f/some/more", here);
    for (int len = 0; len < strlen(long_one); len++) {
        printf(" absolute %ld from its end\n", (long)strlen(long_one) - len);
        struct stat st;
        R(stat(text(long_one, len), &st));
        R(open(text(long_one, len), O_RDWR | O_CREAT, 0644));
        R(unlink(text(long_one, len)));
        R(rename(text(long_one, len), "g"));
        R(rename("f", text(long_one, len)));
    }
    munmap(base, (PAGES + BEHIND) * PAGE);
}

static volatile int handled;
static void handler(int signal) { handled++; }

int main(void) {
    setvbuf(stdout, NULL, _IOFBF, 1 << 20);
    fd = open("f", O_RDWR | O_CREAT, 0644);
    dir = open(".", O_RDONLY | O_DIRECTORY);
    mkdir("d", 0755);
    symlink("a-text-of-some-length-so-that-it-may-cross", "link");
    setxattr("f", "user.long", memset((char[300]){0}, 'v', 300), 300, 0);
    pipe(pipes);
    write(pipes[1], "12345678901234567890", 20);
    fcntl(pipes[0], F_SETFL, O_NONBLOCK);
    all("unmapped", -1);
    struct sigaction action = {.sa_handler = handler};
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
    all("no rights, with a handler", PROT_NONE);
    signal(SIGSEGV, SIG_IGN);
    signal(SIGBUS, SIG_IGN);
    all("read only, ignored", PROT_READ);
    signal(SIGSEGV, SIG_DFL);
    sigset_t every, before;
    sigfillset(&every);
    sigprocmask(SIG_SETMASK, &every, &before);
    all("no rights, every signal blocked", PROT_NONE);
    sigprocmask(SIG_SETMASK, NULL, &every);
    printf("blocked: %d %d, handled %d\n", sigismember(&every, SIGSEGV), sigismember(&every, SIGBUS), handled);
    fflush(stdout);
    if (!fork()) {
        // What is not there is a fault where the program itself touches it.
        sigprocmask(SIG_SETMASK, &before, NULL);
        *(volatile char *)end = 1;
        _exit(0);
    }
    int status;
    wait(&status);
    printf("killed by %d\n", WTERMSIG(status));
    return 0;
}

// Programs that watch hear of what they and other processes do: the same events, names, masks and pairs as on tmpfs.
// IN_OPEN and IN_ACCESS are left out: those of an image come later, or never (docs/reference/semantics.md).
// ways: short both patched host cached
// needs: cc
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#define ALL (IN_ALL_EVENTS & ~(IN_OPEN | IN_ACCESS))
static int in;
static const char *const bits[] = {"ACCESS", "MODIFY", "ATTRIB", "CLOSE_WRITE", "CLOSE_NOWRITE", "OPEN", "MOVED_FROM",
    "MOVED_TO", "CREATE", "DELETE", "DELETE_SELF", "MOVE_SELF", "", "UNMOUNT", "Q_OVERFLOW", "IGNORED"};

static void show(const struct inotify_event *e) {
    static unsigned pairs[64], n;
    unsigned pair = 0;
    if (e->cookie) {
        while (pair < n && pairs[pair] != e->cookie) pair++;
        if (pair == n && n < 64) pairs[n++] = e->cookie;
        pair++;
    }
    printf("   %d", e->wd);
    for (int i = 0; i < 16; i++)
        if (e->mask >> i & 1) printf(" %s", bits[i]);
    printf("%s '%s'", e->mask & IN_ISDIR ? " ISDIR" : "", e->len ? e->name : "");
    if (pair) printf(" pair %u", pair);
    puts("");
}

static void drain(const char *what) {
    static char buffer[65536] __attribute__((aligned(8)));
    printf("%s\n", what);
    for (;;) {
        ssize_t len = read(in, buffer, sizeof buffer);
        if (len <= 0) {
            if (errno != EAGAIN) printf("   read: %s\n", strerror(errno));
            break;
        }
        for (char *at = buffer; at < buffer + len;) {
            struct inotify_event *e = (void *)at;
            show(e);
            at += sizeof *e + e->len;
        }
    }
    fflush(stdout);
}

#define LONG "a-name-that-is-longer-than-what-is-cached-beside-the-attributes-of-a-file"
static int fd;
static void put(const char *path) { close(open(path, O_WRONLY | O_CREAT, 0644)); }

static void create(void) { put("d/new"); }
static void create_long(void) { put("d/" LONG); }
static void make(void) { mkdir("d/sub", 0755); mkfifo("d/fifo", 0600); symlink("new", "d/link"); }
static void begin(void) { fd = open("d/new", O_RDWR); }
static void store(void) { if (write(fd, "abc", 3) != 3) perror("write"); if (write(fd, "def", 3) != 3) perror("write"); }
static void store_at(void) { if (pwrite(fd, "x", 1, 4000) != 1) perror("pwrite"); ftruncate(fd, 10); fallocate(fd, 0, 0, 100); }
static void nothing(void) { if (write(fd, "", 0)) perror("write"); fsync(fd); lseek(fd, 0, SEEK_SET); }
static void end(void) { close(fd); }
static void look(void) { close(open("d/new", O_RDONLY)); }
static void duplicated(void) {
    int a = open("d/new", O_WRONLY | O_APPEND), b = dup(a);
    close(a);
    if (write(b, "1", 1) != 1) perror("write");
    close(b);
}
static void mode(void) { chmod("d/new", 0600); fd = open("d/new", O_RDONLY); fchmod(fd, 0640); close(fd); }
static void owner(void) { chown("d/new", 7, 7); }
static void times(void) {
    struct timespec now[2] = {{.tv_nsec = UTIME_NOW}, {.tv_nsec = UTIME_NOW}};
    struct timespec written[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_nsec = UTIME_NOW}};
    utimensat(AT_FDCWD, "d/new", now, 0);
    utimensat(AT_FDCWD, "d/new", written, 0);
    utimensat(AT_FDCWD, "d/sub", now, 0);
}
static void attribute(void) { setxattr("d/new", "user.a", "1", 1, 0); removexattr("d/new", "user.a"); }
static void cut(void) { truncate("d/new", 3); close(open("d/new", O_WRONLY | O_TRUNC)); }
static void long_name(void) {
    int file = open("d/" LONG, O_WRONLY);
    if (write(file, "abc", 3) != 3) perror("write");
    close(file);
}
static void second(void) { link("d/new", "d/again"); }
static void less(void) { unlink("d/again"); }
static void renamed(void) { rename("d/new", "d/old"); }
static void over(void) { put("d/x"); rename("d/old", "d/x"); rename("d/x", "d/old"); }
static void away(void) { rename("d/old", "out/old"); }
static void back(void) { rename("out/old", "d/old"); }
static void across(void) { rename("d/old", "e/old"); rename("e/old", "d/old"); }
static void exchanged(void) { put("e/y"); renameat2(AT_FDCWD, "d/old", AT_FDCWD, "e/y", RENAME_EXCHANGE); renameat2(AT_FDCWD, "d/old", AT_FDCWD, "e/y", RENAME_EXCHANGE); unlink("e/y"); }
static void directory(void) { rename("d/sub", "e/sub"); rename("e/sub", "d/sub"); }
static void above(void) { rename("e", "f"); put("f/1"); rename("f", "e"); unlink("e/1"); }
static void not_watched(void) { put("out/1"); mkdir("d/sub/in", 0755); rmdir("d/sub/in"); unlink("out/1"); }
static void failed(void) { mkdir("d/sub", 0755); unlink("d/none"); rmdir("d"); rename("d/none", "d/n"); open("d/none", O_RDONLY); }
static void copied(void) {
    int from = open("d/old", O_RDWR), to = open("d/copy", O_WRONLY | O_CREAT, 0600);
    if (write(from, "abc", 3) != 3 || lseek(from, 0, SEEK_SET)) perror("write");
    if (copy_file_range(from, NULL, to, NULL, 1, 0) != 1) perror("copy_file_range");
    close(from);
    close(to);
    unlink("d/copy");
}
static void mapped(void) {
    int file = open("d/old", O_RDWR);
    ftruncate(file, 4096);
    char *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    at[0] = 1;
    munmap(at, 4096);
    close(file);
}
static void gone(void) { rmdir("d/sub"); unlink("d/fifo"); unlink("d/link"); unlink("d/" LONG); }
static void list(void) { DIR *dir = opendir("d"); while (readdir(dir)) ; closedir(dir); }

static const struct { const char *name; void (*run)(void); int here; } steps[] = {
    {"create", create, 0}, {"create, a long name", create_long, 0}, {"make", make, 0}, {"list", list, 0}, {"open", begin, 1},
    {"write", store, 1}, {"write at", store_at, 1}, {"nothing", nothing, 1}, {"close", end, 1}, {"read only", look, 0},
    {"dup", duplicated, 0}, {"chmod", mode, 0}, {"chown", owner, 0}, {"times", times, 0}, {"xattr", attribute, 0},
    {"truncate", cut, 0}, {"long name", long_name, 0}, {"link", second, 0}, {"unlink one of two", less, 0},
    {"rename", renamed, 0}, {"rename over", over, 0}, {"out", away, 0}, {"in", back, 0}, {"across", across, 0},
    {"exchange", exchanged, 0}, {"a directory", directory, 0}, {"a watched directory", above, 0},
    {"not watched", not_watched, 0}, {"failures", failed, 0}, {"copy", copied, 0}, {"map", mapped, 0}, {"remove", gone, 0},
};

static void by_another(void (*run)(void)) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        run();
        _exit(0);
    }
    waitpid(child, NULL, 0);
}

static void files(void) {
    put("one");
    put("two");
    int a = inotify_add_watch(in, "one", ALL), b = inotify_add_watch(in, "two", ALL);
    printf("files %d %d\n", a, b);
    chmod("one", 0600);
    link("one", "three");
    unlink("three");
    drain("links");
    rename("one", "four");
    drain("move self");
    put("three");
    rename("three", "two");
    drain("the other is gone");
    rename("four", "two");
    drain("move self again");
    unlink("two");
    drain("delete self");
}

// A file that is open when its name goes: IN_DELETE_SELF when it is closed.
static void open_file(void) {
    put("o");
    int wd = inotify_add_watch(in, "o", IN_DELETE_SELF | IN_CLOSE_WRITE), file = open("o", O_WRONLY);
    printf("open %d\n", wd);
    unlink("o");
    drain("unlinked");
    close(file);
    drain("closed");
    mkdir("od", 0700);
    inotify_add_watch(in, "od", ALL);
    put("od/a");
    unlink("od/a");
    rmdir("od");
    drain("a directory");
}

static void errors(void) {
    put("file");
    symlink("file", "soft");
    mkdir("dir", 0700);
    int watch = inotify_add_watch(in, "dir", ALL);
    printf("same %d\n", inotify_add_watch(in, "dir", IN_CREATE) == watch);
    put("dir/a");
    unlink("dir/a");
    drain("only create");
    inotify_add_watch(in, "dir", IN_DELETE | IN_MASK_ADD);
    put("dir/a");
    unlink("dir/a");
    drain("and delete");
    struct { const char *path; unsigned mask; } tries[] = {{"dir", IN_CREATE | IN_MASK_CREATE}, {"none", ALL},
        {"file", ALL | IN_ONLYDIR}, {"file/x", ALL}, {"", ALL}, {"dir", 0}, {"dir/../file", ALL}, {"soft", IN_ATTRIB}, {"soft", IN_ATTRIB | IN_DONT_FOLLOW}};
    for (unsigned i = 0; i < sizeof tries / sizeof *tries; i++) {
        int wd = inotify_add_watch(in, tries[i].path, tries[i].mask);
        printf("%s %x: %s\n", tries[i].path, tries[i].mask, wd < 0 ? strerror(errno) : "watched");
    }
    printf("rm %d\n", inotify_rm_watch(in, watch));
    put("dir/b");
    drain("removed");
    printf("rm again %d %s\n", inotify_rm_watch(in, watch), strerror(errno));
    inotify_add_watch(in, "dir", IN_CREATE | IN_ONESHOT);
    put("dir/c");
    put("dir/e");
    drain("once");
    int bad = open("file", O_RDONLY);
    int wd = inotify_add_watch(bad, "dir", ALL);
    printf("no inotify: %d %s\n", wd, strerror(errno));
    close(bad);
    printf("by number: %s\n", syscall(SYS_inotify_add_watch, in, "dir", IN_DELETE) > 0 ? "watched" : strerror(errno));
    unlink("dir/e");
    drain("by number");
}

static void waiting(void) {
    mkdir("w", 0700);
    int own = inotify_init1(IN_CLOEXEC), copy = dup(own), ep = epoll_create1(0), left;
    inotify_add_watch(own, "w", IN_CREATE | IN_DELETE);
    struct epoll_event event = {.events = EPOLLIN};
    epoll_ctl(ep, EPOLL_CTL_ADD, own, &event);
    struct pollfd one = {.fd = copy, .events = POLLIN};
    ioctl(own, FIONREAD, &left);
    printf("before: poll %d, epoll %d, %d bytes\n", poll(&one, 1, 0), epoll_wait(ep, &event, 1, 0), left);
    pid_t child = fork();
    if (child == 0) {
        usleep(50000);
        put("w/abc");
        put("w/d");
        _exit(0);
    }
    printf("poll %d, epoll %d\n", poll(&one, 1, 10000), epoll_wait(ep, &event, 1, 10000));
    waitpid(child, NULL, 0);
    ioctl(own, FIONREAD, &left);
    printf("%d bytes\n", left);
    char small[8], large[4096] __attribute__((aligned(8)));
    ssize_t len = read(own, small, sizeof small);
    printf("a small buffer: %zd %s\n", len, strerror(errno));
    close(own);
    printf("%zd bytes\n", read(copy, large, sizeof large));
    // A child that has the descriptor by inheritance is told, and the parent's end does not end that.
    int pipes[2];
    if (pipe(pipes)) perror("pipe");
    fflush(stdout);
    child = fork();
    if (child == 0) {
        if (read(pipes[0], small, 1) != 1) perror("read");
        printf("the child: poll %d\n", poll(&one, 1, 10000));
        len = read(copy, large, sizeof large);
        printf("the child: %s\n", len > 16 ? ((struct inotify_event *)large)->name : "nothing");
        fflush(stdout);
        _exit(0);
    }
    close(copy);
    unlink("w/d");
    if (write(pipes[1], "x", 1) != 1) perror("write");
    waitpid(child, NULL, 0);
}

static void overflow(void) {
    mkdir("many", 0700);
    int queue = 16384;
    FILE *limit = fopen("/proc/sys/fs/inotify/max_queued_events", "r");
    if (!limit || fscanf(limit, "%d", &queue) != 1) perror("limit");
    fclose(limit);
    inotify_add_watch(in, "many", IN_CREATE | IN_DELETE);
    for (int i = 0; i < queue / 2 + 10; i++) {
        put("many/a");
        unlink("many/a");
    }
    static char buffer[1 << 20] __attribute__((aligned(8)));
    int count = 0, last = 0;
    ssize_t len;
    while ((len = read(in, buffer, sizeof buffer)) > 0)
        for (char *at = buffer; at < buffer + len; count++) {
            struct inotify_event *e = (void *)at;
            last = e->mask;
            at += sizeof *e + e->len;
        }
    printf("overflow: %d events more than the queue, the last %x\n", count - queue, last);
}

int main(void) {
    in = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    for (int round = 0; round < 2; round++) {
        mkdir("d", 0755);
        mkdir("e", 0755);
        mkdir("out", 0755);
        put("d/before");
        int d = inotify_add_watch(in, "d", ALL), e = inotify_add_watch(in, "e", ALL);
        printf("watches %d %d, %s\n", d, e, round ? "by another process" : "by itself");
        for (unsigned i = 0; i < sizeof steps / sizeof *steps; i++) {
            if (round && !steps[i].here)
                by_another(steps[i].run);
            else
                steps[i].run();
            drain(steps[i].name);
        }
        unlink("d/before");
        if (unlink("d/old")) perror("d/old");
        drain("old ones");
        rmdir("d");
        rmdir("e");
        rmdir("out");
        drain("directories");
    }
    files();
    open_file();
    errors();
    waiting();
    overflow();
    return 0;
}

// splice, sendfile and copy_file_range into a file that cannot take everything: the bytes that were not written are still in
// the pipe or before the position of the file, and errors and SIGXFSZ come as from the kernel.
// ways: short both patched kernel host cached cached-fuse
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LEN = 40000 };
static char bytes[LEN];
static int pipes[2], signals;

static void note(int signal) { signals++; }

static void limit(long size) {
    struct rlimit limit = {size < 0 ? RLIM_INFINITY : size, RLIM_INFINITY};
    if (setrlimit(RLIMIT_FSIZE, &limit)) perror("setrlimit");
}

static void fill(int count) {
    for (int i = 0; i < LEN; i++) bytes[i] = 'a' + i % 23;
    if (write(pipes[1], bytes, count) != count) perror("write");
}

// What is left in the pipe, and whether it is what follows the `taken` bytes at its beginning.
static void left(long taken) {
    static char rest[LEN];
    long have = 0, got;
    struct pollfd readable = {pipes[0], POLLIN};
    while (poll(&readable, 1, 0) == 1 && (readable.revents & POLLIN) && (got = read(pipes[0], rest + have, LEN - have)) > 0) have += got;
    taken = taken < 0 ? 0 : taken;
    printf("  left %ld, %s; signals %d\n", have, memcmp(rest, bytes + taken, have) ? "other bytes" : "the right ones", signals);
    signals = 0;
}

// Lifts the limit, as it holds for the report too.
static long said(const char *what, long result) {
    int why = errno;
    limit(-1);
    errno = why;
    printf("%s = %ld %s\n", what, result, result < 0 ? strerrorname_np(errno) : "");
    return result;
}

static int made(const char *name, int flags) {
    unlink(name);
    return open(name, O_CREAT | O_RDWR | flags, 0644);
}

static void from_pipe(void) {
    static const long limits[] = {0, 1, 100, 4096, 5000, 8192, 20000, 30000};
    for (unsigned i = 0; i < sizeof limits / sizeof *limits; i++) {
        int to = made("to", 0);
        char what[60];
        sprintf(what, "splice with limit %ld", limits[i]);
        fill(20000), limit(limits[i]);
        long moved = said(what, splice(pipes[0], 0, to, 0, 20000, 0));
        left(moved);
        long at = lseek(to, 0, SEEK_CUR), size = lseek(to, 0, SEEK_END);
        printf("  size %ld, position %ld\n", size, at);
        close(to);
    }
    int to = made("to", 0);
    loff_t at = 5000;
    fill(20000), limit(10000);
    left(said("splice at an offset", splice(pipes[0], 0, to, &at, 20000, 0)));
    printf("  at %ld, position %ld\n", (long)at, (long)lseek(to, 0, SEEK_CUR));
    fill(20000), limit(10000);
    at = 10000;
    left(said("splice at the limit", splice(pipes[0], 0, to, &at, 20000, 0)));
    fill(20000), limit(10000);
    at = 20000;
    left(said("splice behind the limit", splice(pipes[0], 0, to, &at, 20000, SPLICE_F_NONBLOCK)));
    at = 20000, limit(10000);
    left(said("splice of an empty pipe behind the limit", splice(pipes[0], 0, to, &at, 20000, SPLICE_F_NONBLOCK)));
    fill(100);
    at = -1;
    left(said("splice at a negative offset", splice(pipes[0], 0, to, &at, 100, 0)));
    fill(100);
    left(said("splice to a bad offset", splice(pipes[0], 0, to, (void *)8, 100, 0)));
    fill(100);
    left(said("splice of part", splice(pipes[0], 0, to, 0, 30, 0)));
    fill(100);
    left(said("splice of nothing", splice(pipes[0], 0, to, 0, 0, 0)));
    int only = open("to", O_RDONLY), end = open("to", O_WRONLY | O_APPEND);
    fill(100);
    left(said("splice to a file that is read", splice(pipes[0], 0, only, 0, 100, 0)));
    fill(100);
    left(said("splice to a file that is appended to", splice(pipes[0], 0, end, 0, 100, 0)));
    fill(100);
    left(said("splice with unknown flags", splice(pipes[0], 0, to, 0, 100, 0x100)));
    close(only), close(end), close(to);
}

static void from_file(void) {
    int from = made("from", 0), to = made("to", 0), outside = open("/proc/self/exe", O_RDONLY);
    fill(0);
    if (pwrite(from, bytes, LEN, 0) != LEN) perror("pwrite");
    lseek(from, 0, SEEK_SET);
    limit(10000);
    said("sendfile", sendfile(to, from, 0, LEN));
    printf("  positions %ld %ld, signals %d\n", (long)lseek(from, 0, SEEK_CUR), (long)lseek(to, 0, SEEK_CUR), signals);
    limit(10000);
    said("sendfile again", sendfile(to, from, 0, LEN));
    printf("  positions %ld %ld\n", (long)lseek(from, 0, SEEK_CUR), (long)lseek(to, 0, SEEK_CUR));
    limit(10000);
    said("sendfile from outside", sendfile(to, outside, 0, 5000));
    printf("  position outside %ld\n", (long)lseek(outside, 0, SEEK_CUR));
    lseek(from, 0, SEEK_SET), lseek(to, 9000, SEEK_SET);
    limit(10000);
    said("copy_file_range", copy_file_range(from, 0, to, 0, 5000, 0));
    printf("  positions %ld %ld\n", (long)lseek(from, 0, SEEK_CUR), (long)lseek(to, 0, SEEK_CUR));
    limit(10000);
    said("copy_file_range again", copy_file_range(from, 0, to, 0, 5000, 0));
    printf("  positions %ld %ld\n", (long)lseek(from, 0, SEEK_CUR), (long)lseek(to, 0, SEEK_CUR));
    close(from), close(to), close(outside);
}

// Several readers of one pipe: each byte arrives once.
static void together(void) {
    enum { ALL = 3000000, READERS = 4 };
    static unsigned seen[26];
    pid_t readers[READERS], writer;
    for (int i = 0; i < READERS; i++) {
        if ((readers[i] = fork()) == 0) {
            char name[20];
            sprintf(name, "part%d", i);
            int to = made(name, 0);
            close(pipes[1]);
            while (splice(pipes[0], 0, to, 0, 10000, 0) > 0) {}
            _exit(0);
        }
    }
    if ((writer = fork()) == 0) {
        fill(0);
        for (long done = 0; done < ALL;) done += write(pipes[1], bytes + done % 23, ALL - done < 5000 ? ALL - done : 5000);
        _exit(0);
    }
    close(pipes[1]);
    waitpid(writer, 0, 0);
    long sum = 0;
    for (int i = 0; i < READERS; i++) {
        char name[20], buffer[9999];
        long got;
        waitpid(readers[i], 0, 0);
        sprintf(name, "part%d", i);
        int part = open(name, O_RDONLY);
        while ((got = read(part, buffer, sizeof buffer)) > 0) {
            sum += got;
            for (long k = 0; k < got; k++) seen[buffer[k] - 'a' < 0 || buffer[k] > 'w' ? 25 : buffer[k] - 'a']++;
        }
        close(part), unlink(name);
    }
    printf("together: %ld bytes,", sum);
    for (int i = 0; i < 26; i++) printf(" %u", seen[i]);
    printf("\n");
}

int main(void) {
    setvbuf(stdout, 0, _IOLBF, 0);
    signal(SIGXFSZ, note);
    if (pipe(pipes)) return perror("pipe"), 1;
    from_pipe();
    from_file();
    together();
    return 0;
}

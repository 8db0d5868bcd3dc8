// splice between files and pipes, with and without positions; tee knows pipes only.
// ways: short both patched kernel host cached cached-fuse
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ASK(...)                                                                                         \
    do {                                                                                                 \
        errno = 0;                                                                                       \
        long result = (long)(__VA_ARGS__);                                                               \
        printf("%s = %ld %s\n", #__VA_ARGS__, result, result < 0 ? strerrorname_np(errno) : "");          \
    } while (0)

int main(void) {
    static char big[300000], back[300000];
    int fifo[2], from = open("from", O_CREAT | O_RDWR, 0644), to = open("to", O_CREAT | O_RDWR, 0644);
    int only = open("from", O_WRONLY), end = open("to", O_WRONLY | O_APPEND);
    loff_t at;
    pipe(fifo);
    for (unsigned i = 0; i < sizeof big; i++) big[i] = "0123456789abcdef"[i * 7 % 16];
    write(from, big, sizeof big);
    lseek(from, 0, SEEK_SET);
    /* All of it, by what a pipe takes at a time. */
    long total = 0, moved;
    while ((moved = splice(from, 0, fifo[1], 0, 1 << 20, SPLICE_F_MOVE)) > 0) {
        long left = moved;
        while (left > 0) {
            long put = splice(fifo[0], 0, to, 0, left, 0);
            if (put <= 0) return perror("splice"), 1;
            left -= put;
        }
        total += moved;
    }
    printf("moved %ld, position %ld\n", total, (long)lseek(to, 0, SEEK_CUR));
    pread(to, back, sizeof back, 0);
    printf("same %d\n", memcmp(big, back, sizeof big) == 0);
    at = 5;
    ASK(splice(from, &at, fifo[1], 0, 10, 0));
    printf("at %ld\n", (long)at);
    /* What a pipe holds does not change when the file does. */
    pwrite(from, "XXXXXXXXXXXXXXXXXXXX", 20, 0);
    ASK(read(fifo[0], back, 100));
    ASK(splice(fifo[0], 0, to, 0, 10, SPLICE_F_NONBLOCK));
    write(fifo[1], "pipe", 4);
    at = 2;
    ASK(splice(fifo[0], 0, to, &at, 100, 0));
    printf("at %ld, position %ld\n", (long)at, (long)lseek(to, 0, SEEK_CUR));
    at = sizeof big;
    ASK(splice(from, &at, fifo[1], 0, 10, 0));
    ASK(splice(from, 0, to, 0, 10, 0));
    ASK(splice(only, 0, fifo[1], 0, 10, 0));
    ASK(splice(fifo[0], 0, end, 0, 10, 0));
    ASK(splice(from, 0, fifo[1], &at, 10, 0));
    ASK(tee(from, fifo[1], 10, 0));
    return 0;
}

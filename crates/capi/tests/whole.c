/*
 * Goal: what is written through a descriptor opened with BP_O_ATOMIC is there whole or not at all, whenever the writer is
 * killed. Method: processes overwrite records of 1 MiB, each in a namespace of its own, and are killed at random; this one
 * reads. Before that: where the flag cannot be had, and what is too much.
 */
#define _GNU_SOURCE
#include "bypath.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SIZE = 1 << 20, RECORDS = 3, WRITERS = 3, ROUNDS = 60 };

#define EXPECT(what) \
    do { \
        if (!(what)) { \
            printf("line %d: not so: %s (%s)\n", __LINE__, #what, strerror(errno)); \
            exit(1); \
        } \
    } while (0)

static bp_ns *mounted(const char *image)
{
    bp_ns *ns = bp_open_namespace();
    EXPECT(ns && !bp_mount(ns, image, "/", NULL));
    return ns;
}

static void overwrite(const char *image, unsigned seed)
{
    bp_ns *ns = mounted(image);
    int fd = bp_open(ns, "/records", O_RDWR | BP_O_ATOMIC, 0);
    char *record = malloc(SIZE);
    EXPECT(fd >= 0 && record);
    for (;;) {
        off_t at = 5 + (off_t)(rand_r(&seed) % RECORDS) * SIZE;
        memset(record, rand_r(&seed) % 255 + 1, SIZE);
        if (rand_r(&seed) % 2) {
            EXPECT(bp_pwrite(ns, fd, record, SIZE, at) == SIZE);
        } else {
            struct iovec parts[2] = {{record, 100}, {record + 100, SIZE - 100}};
            EXPECT(bp_lseek(ns, fd, at, SEEK_SET) == at && bp_writev(ns, fd, parts, 2) == SIZE);
        }
    }
}

static void flags(bp_ns *ns)
{
    bp_ns *memory = bp_open_namespace();
    EXPECT(!bp_mount(memory, "mem:", "/", NULL));
    EXPECT(bp_open(memory, "/file", O_RDWR | O_CREAT | BP_O_ATOMIC, 0644) < 0 && errno == EOPNOTSUPP);
    bp_close_namespace(memory);
    EXPECT(bp_open(ns, "/", O_RDONLY | BP_O_ATOMIC, 0) < 0 && errno == EINVAL);
    EXPECT(bp_open(ns, "/nothing", O_RDWR | BP_O_ATOMIC, 0) < 0 && errno == ENOENT);
    int fd = bp_open(ns, "/records", O_RDWR | O_CREAT, 0644), whole = bp_open(ns, "/records", O_RDWR | BP_O_ATOMIC, 0);
    EXPECT(fd >= 0 && whole >= 0);
    EXPECT(!(bp_fcntl(ns, fd, F_GETFL, 0) & BP_O_ATOMIC) && bp_fcntl(ns, whole, F_GETFL, 0) & BP_O_ATOMIC);
    EXPECT(!bp_fcntl(ns, whole, F_SETFL, O_APPEND) && bp_fcntl(ns, whole, F_GETFL, 0) & BP_O_ATOMIC);
    EXPECT(!bp_fcntl(ns, whole, F_SETFL, 0));
    char *record = calloc(1, (32 << 20) + 1);
    EXPECT(record && bp_pwrite(ns, fd, record, RECORDS * SIZE + 5, 0) == RECORDS * SIZE + 5);
    EXPECT(bp_pwrite(ns, whole, record, (32 << 20) + 1, 0) < 0 && errno == EFBIG);
    EXPECT(bp_pwrite(ns, fd, record, (32 << 20) + 1, 0) == (32 << 20) + 1);
    EXPECT(!bp_ftruncate(ns, fd, RECORDS * SIZE + 5));
    free(record);
    bp_close(ns, fd);
    bp_close(ns, whole);
}

int main(int argc, char **argv)
{
    unsigned seed = argc > 2 ? (unsigned)atoi(argv[2]) : (unsigned)getpid();
    char *record = malloc(SIZE);
    bp_ns *ns = mounted(argv[1]);
    EXPECT(record);
    flags(ns);
    for (int round = 0; round < ROUNDS; round++) {
        pid_t writers[WRITERS];
        for (int i = 0; i < WRITERS; i++) {
            writers[i] = fork();
            EXPECT(writers[i] >= 0);
            if (!writers[i])
                overwrite(argv[1], seed + (unsigned)(round * WRITERS + i));
        }
        usleep((useconds_t)(rand_r(&seed) % 25000));
        for (int i = 0; i < WRITERS; i++)
            kill(writers[i], SIGKILL);
        for (int i = 0; i < WRITERS; i++) {
            int status;
            EXPECT(waitpid(writers[i], &status, 0) == writers[i] && WIFSIGNALED(status));
        }
        int fd = bp_open(ns, "/records", O_RDONLY, 0);
        EXPECT(fd >= 0);
        for (int i = 0; i < RECORDS; i++) {
            EXPECT(bp_pread(ns, fd, record, SIZE, 5 + (off_t)i * SIZE) == SIZE);
            for (int at = 0; at < SIZE; at++) {
                if (record[at] != record[0]) {
                    printf("seed %u, round %d: record %d is mixed at byte %d\n", seed, round, i, at);
                    return 1;
                }
            }
        }
        bp_close(ns, fd);
    }
    bp_close_namespace(ns);
    puts("whole");
    return 0;
}

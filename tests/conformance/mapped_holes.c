// Shared mappings of files with holes: reading costs no space, and what others put into the holes is seen.
// ways: short both patched kernel host cached
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MIB = 1 << 20, LEN = 64 * MIB };
static int file;
static volatile sig_atomic_t caught;

static void on_bus(int signal) {
    caught = signal;
    _exit(7);
}

// Runs `work` in a child and waits for it.
static void in_child(void work(long), long argument) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        work(argument);
        fflush(stdout);
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    if (status)
        printf("child: %x\n", status);
}

static void child_writes(long at) {
    int own = open("f", O_RDWR);
    if (pwrite(own, "written", 7, at) != 7)
        perror("pwrite");
}

static void child_stores(long at) {
    int own = open("f", O_RDWR);
    char *map = mmap(0, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, own, 0);
    strcpy(map + at, "stored");
}

static void child_allocates(long at) {
    int own = open("f", O_RDWR);
    if (posix_fallocate(own, at & ~4095L, 8192) || pwrite(own, "given", 5, at) != 5)
        perror("fallocate");
}

static int zeros(const char *map, long from, long to) {
    for (long at = from; at < to; at += 4096)
        if (map[at] || map[at + 4095])
            return 0;
    return 1;
}

static void through_pipe(const char *what, char *map, long at, int out) {
    int ends[2];
    char got[8192];
    memset(got, 'g', sizeof got);
    if (pipe(ends))
        perror("pipe");
    if (out) {
        printf("%s: %zd", what, write(ends[1], map + at, 8192));
        printf(" %zd %.8s\n", read(ends[0], got, 8192), got + 4096);
    } else {
        printf("%s: %zd", what, write(ends[1], got, 8192));
        printf(" %zd", read(ends[0], map + at, 8192));
        printf(" %.8s\n", map + at + 4096);
    }
    close(ends[0]);
    close(ends[1]);
}

// Two processes that say by memory alone that they are ready.
static void without_calls(char *map) {
    atomic_int *turn = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    atomic_store(turn, -1);
    pid_t child = fork();
    if (child == 0) {
        int own = open("f", O_RDWR);
        for (int i = 0; i < 40; i++) {
            while (atomic_load(turn) != 2 * i)
                usleep(20);
            if (pwrite(own, &i, 4, 40L * MIB + i * 3 * 4096L) != 4)
                perror("pwrite");
            atomic_store(turn, 2 * i + 1);
        }
        _exit(0);
    }
    int seen = 0;
    for (int i = 0; i < 40; i++) {
        int *place = (int *)(map + 40L * MIB + i * 3 * 4096L);
        seen += *place == 0;
        atomic_store(turn, 2 * i);
        while (atomic_load(turn) != 2 * i + 1)
            usleep(20);
        seen += *place == i && place[1024] == 0;
    }
    waitpid(child, 0, 0);
    printf("without calls: %d of 80\n", seen);
}

int main(void) {
    struct stat st;
    file = open("f", O_RDWR | O_CREAT, 0644);
    int reads = open("f", O_RDONLY);
    if (ftruncate(file, LEN) || pwrite(file, "first", 5, 4 * MIB) != 5)
        perror("f");
    char *map = mmap(0, LEN, PROT_READ, MAP_SHARED, file, 0), *other = mmap(0, LEN, PROT_READ, MAP_SHARED, reads, 0);
    fstat(file, &st);
    printf("mapped %d %d, %ld blocks\n", map != MAP_FAILED, other != MAP_FAILED, (long)st.st_blocks);
    printf("zeros %d %d, %s %s\n", zeros(map, 0, 4 * MIB), zeros(other, 5 * MIB, 9 * MIB), map + 4 * MIB, other + 4 * MIB);
    in_child(child_writes, 1 * MIB + 10);
    printf("%s %s, beside it %d\n", map + 1 * MIB + 10, other + 1 * MIB + 10, zeros(map, 1 * MIB + 4096, 2 * MIB));
    in_child(child_stores, 20 * MIB);
    printf("%s %s\n", map + 20 * MIB, other + 20 * MIB);
    in_child(child_allocates, 30 * MIB + 5000);
    printf("%s %s\n", map + 30 * MIB + 5000, other + 30 * MIB + 5000);
    if (pwrite(file, "own", 3, 33 * MIB - 1) != 3)
        perror("pwrite");
    printf("%s %s\n", map + 33 * MIB - 1, other + 33 * MIB - 1);
    in_child(child_writes, 35 * MIB + 4096);
    through_pipe("pipe from a hole", other, 35 * MIB, 1);
    through_pipe("pipe from a hole that nobody filled", other, 37 * MIB, 1);
    without_calls(map);
    int copy = open("g", O_RDWR | O_CREAT, 0644);
    printf("write to a file: %zd\n", write(copy, other + 50 * MIB, 100000));
    printf("mprotect of what may only be read: %d\n", mprotect(other + 51 * MIB, 8192, PROT_READ | PROT_WRITE));
    printf("mprotect: %d\n", mprotect(map, LEN, PROT_READ | PROT_WRITE));
    char got[8] = {0};
    strcpy(map + 52 * MIB, "mine");
    printf("stored: %zd", pread(file, got, 5, 52 * MIB));
    printf(" %s, %s\n", got, other + 52 * MIB);
    through_pipe("pipe into a hole", map, 54 * MIB, 0);
    printf("mprotect of a part: %d\n", mprotect(map + 52 * MIB, 2 * MIB, PROT_READ));
    in_child(child_writes, 53 * MIB + 8);
    printf("%s %s\n", map + 52 * MIB, map + 53 * MIB + 8);
    char *private = mmap(0, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    private[55 * MIB] = 'p';
    printf("private: %d, shared %d\n", private[55 * MIB], map[55 * MIB]);
    fflush(stdout);
    // What is touched past the end, after the file has grown, may be a hole.
    char *more = mmap(0, LEN + 8 * MIB, PROT_READ, MAP_SHARED, reads, 0);
    if (ftruncate(file, LEN + 8 * MIB))
        perror("ftruncate");
    in_child(child_writes, LEN + 4 * MIB);
    printf("grown: %d %s\n", zeros(more, LEN, LEN + 4 * MIB), more + LEN + 4 * MIB);
    if (ftruncate(file, LEN))
        perror("ftruncate");
    fflush(stdout);
    if (fork() == 0) {
        signal(SIGBUS, on_bus);
        printf("%c", more[LEN + 4096]);
        _exit(0);
    }
    int status;
    wait(&status);
    printf("past the end: %d\n", WEXITSTATUS(status));
    return 0;
}

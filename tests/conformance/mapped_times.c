// Stores through a shared mapping change a file's times of change, and reads do not: by msync, munmap or the end of the
// process, however it ends, after fork, mprotect, mremap, a partial munmap, and where the kernel makes the store.
// ways: short both patched kernel host cached
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
#include "mapped_times.h"

static int pipes[2], sockets[2];

// In a child that ends by `how`.
static void child(const char *what, void (*how)(void)) {
    begin(PROT_READ | PROT_WRITE);
    pid_t pid = fork();
    if (pid == 0) {
        how();
        _exit(9);
    }
    int status;
    if (waitpid(pid, &status, 0) != pid) perror("waitpid");
    said(what);
    munmap(map, LEN), close(fd);
}

static void exits(void) { map[5] = 1, exit(0); }
static void exits_at_once(void) { map[5] = 1, _exit(0); }
static void is_killed(void) { map[5] = 1, raise(SIGKILL); }
static void looks(void) { exit(map[5] == 1); }
static void executes(void) { map[5] = 1, execl("/bin/true", "true", NULL); }

static void by_kernel(void) {
    begin(PROT_READ | PROT_WRITE);
    write(pipes[1], "hello", 5);
    printf("read = %ld", (long)read(pipes[0], map + 10, 5));
    printf(" %.5s\n", map + 10);
    end("read into it");

    begin(PROT_READ | PROT_WRITE);
    char one[2];
    write(pipes[1], "hello", 5);
    struct iovec parts[] = {{one, 2}, {map + LEN - 3, 3}};
    long got = readv(pipes[0], parts, 2);
    // The kernel may stop before what it cannot store into; the rest is there.
    if (got == 2) got += read(pipes[0], map + LEN - 3, 3);
    printf("readv = %ld %.3s\n", got, map + LEN - 3);
    end("readv into it");

    begin(PROT_READ | PROT_WRITE);
    send(sockets[1], "datagram", 8, 0);
    printf("recv = %ld", (long)recv(sockets[0], map + 10, 100, MSG_DONTWAIT));
    printf(" %.8s\n", map + 10);
    end("recv into it");

    begin(PROT_READ | PROT_WRITE);
    send(sockets[1], "datagram", 8, 0);
    struct iovec whole = {map + 4090, 100};
    struct msghdr message = {.msg_iov = &whole, .msg_iovlen = 1};
    printf("recvmsg = %ld", (long)recvmsg(sockets[0], &message, MSG_DONTWAIT));
    printf(" %.8s\n", map + 4090);
    end("recvmsg into it");

    begin(PROT_READ | PROT_WRITE);
    printf("getrandom = %ld\n", (long)getrandom(map, 16, 0));
    end("getrandom into it");

    begin(PROT_READ | PROT_WRITE);
    printf("getrusage = %d\n", getrusage(RUSAGE_SELF, (void *)(map + 64)));
    end("getrusage into it");

    begin(PROT_READ | PROT_WRITE);
    FILE *zeros = fopen("/dev/zero", "r");
    size_t items = fread(map, 1, LEN, zeros);
    printf("fread = %zu %d\n", items, map[LEN - 1]);
    fclose(zeros);
    end("fread into it");

    begin(PROT_READ | PROT_WRITE);
    int other = open("g", O_RDWR | O_CREAT | O_TRUNC, 0644);
    pwrite(other, "other", 5, 0);
    printf("pread = %ld", (long)pread(other, map + PAGE, 5, 0));
    printf(" %.5s\n", map + PAGE);
    close(other);
    end("pread of a file of the mount into it");

    begin(PROT_READ | PROT_WRITE);
    other = open("g", O_RDWR | O_CREAT | O_TRUNC, 0644);
    printf("write = %ld\n", (long)write(other, map, LEN));
    close(other);
    end("written from it to another file");
}

int main(void) {
    setvbuf(stdout, 0, _IOLBF, 0);
    if (pipe(pipes) || socketpair(AF_UNIX, SOCK_DGRAM, 0, sockets)) return perror("pipe"), 1;

    begin(PROT_READ | PROT_WRITE), said("mapped");
    volatile char sum = 0;
    for (int i = 0; i < LEN; i++) sum += map[i];
    msync(map, LEN, MS_SYNC), said("read, msync");
    end("read, munmap");

    begin(PROT_READ | PROT_WRITE), map[5] = 1, end("stored, munmap");
    begin(PROT_READ | PROT_WRITE), map[5] = 1, msync(map, LEN, MS_SYNC), said("stored, msync"), end("munmap");
    begin(PROT_READ | PROT_WRITE), close(fd), map[5] = 1, munmap(map, LEN), said("closed, stored, munmap");
    begin(PROT_READ), end("mapped to be read, munmap");
    begin(PROT_READ), mprotect(map, LEN, PROT_READ | PROT_WRITE), end("mprotect, munmap");
    begin(PROT_READ), mprotect(map, LEN, PROT_READ | PROT_WRITE), map[5] = 1, end("mprotect, stored, munmap");
    begin(PROT_READ | PROT_WRITE), mprotect(map + PAGE, PAGE, PROT_READ), map[2 * PAGE] = 1, end("part protected, stored beside it");
    begin(PROT_READ | PROT_WRITE), munmap(map, PAGE), map[PAGE] = 1, end("partly unmapped, stored into the rest");
    begin(PROT_READ | PROT_WRITE), munmap(map, PAGE), sum += map[PAGE], end("partly unmapped, rest read");
    begin(PROT_READ | PROT_WRITE);
    map = mremap(map, LEN, LEN + PAGE, MREMAP_MAYMOVE), map[5] = 1, end("mremap, stored");
    begin(PROT_READ | PROT_WRITE);
    map = mremap(map, LEN, LEN / 2, 0), sum += map[5], end("mremap, read");
    begin(PROT_READ | PROT_WRITE);
    char *second = mmap(0, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    second[9] = 1, munmap(second, LEN), end("stored by another mapping");
    begin(PROT_READ | PROT_WRITE);
    second = mmap(0, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    second[9] = 1, munmap(second, LEN), end("stored into a private mapping");
    begin(PROT_WRITE), map[5] = 1, end("mapped to be written alone, stored");
    begin(PROT_READ | PROT_WRITE), __atomic_fetch_add((int *)map, 1, __ATOMIC_SEQ_CST), end("an atomic addition");

    child("child exits", exits);
    child("child exits at once", exits_at_once);
    child("child is killed", is_killed);
    child("child executes", executes);
    child("child only reads", looks);
    by_kernel();
    return 0;
}

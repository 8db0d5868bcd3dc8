// A child of a fork beside threads that open and close: what it opens lies on a number of its own, to the kernel too,
// so that no pipe gets the same number, and no number is taken by what nobody has. Much memory makes the time long
// in which the kernel has copied its table of descriptors and not yet what the library knows of it.
// ways: short both patched host cached
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FORKS = 150, THREADS = 3, KEPT = 90, FILES = 6, MEMORY = 64 << 20 };
static volatile int stop;

static void *opens(void *at) {
    char name[20];
    sprintf(name, "thread%ld", (long)at);
    while (!stop) {
        int fd[FILES];
        for (int i = 0; i < FILES; i++) fd[i] = open(name, O_CREAT | O_RDWR, 0644);
        for (int i = 0; i < FILES; i++) close(fd[i]);
        close(dup(0));
    }
    return 0;
}

static int child(void) {
    char byte = 'f';
    int pair[2], file = open("child", O_RDWR);
    if (file < 0) return 1;
    if (pipe(pair)) return 2;
    if (file == pair[0] || file == pair[1]) return 3;
    if (write(pair[1], "p", 1) != 1) return 4;
    if (pread(file, &byte, 1, 0) != 1 || byte != 'c') return 5;
    if (read(pair[0], &byte, 1) != 1 || byte != 'p') return 6;
    if (lseek(KEPT, 0, SEEK_CUR) != 1) return 7;
    for (int fd = 3; fd < KEPT; fd++) close(fd);
    if (open("child", O_RDWR) != 3 || pipe(pair) || pair[0] != 4 || pair[1] != 5) return 8;
    return 0;
}

int main(void) {
    int file = open("child", O_CREAT | O_RDWR, 0644), bad[16] = {0};
    if (write(file, "c", 1) != 1 || dup2(file, KEPT) != KEPT) return 1;
    close(file);
    char *memory = mmap(0, MEMORY, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(memory, MEMORY, MADV_NOHUGEPAGE);
    for (long at = 0; at < MEMORY; at += 4096) memory[at] = 1;
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++) pthread_create(&threads[i], 0, opens, (void *)i);
    for (int i = 0; i < FORKS; i++) {
        pid_t pid = fork();
        if (!pid) alarm(20), _exit(child());
        int status;
        waitpid(pid, &status, 0);
        bad[WIFEXITED(status) ? WEXITSTATUS(status) & 15 : 15]++;
    }
    stop = 1;
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], 0);
    for (int i = 1; i < 16; i++)
        if (bad[i]) printf("%d children failed at %d\n", bad[i], i);
    puts("done");
}

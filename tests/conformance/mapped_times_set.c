// Stores through a shared mapping and times that a program sets after them: these stay, also in a child that has not stored.
// Through a kernel mount the kernel writes pages back later, with the time of then.
// ways: short both patched host cached
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "mapped_times.h"

static void exits(void) { map[5] = 1, exit(0); }
static void looks(void) { exit(map[5] == 1); }

int main(void) {
    setvbuf(stdout, 0, _IOLBF, 0);
    begin(PROT_READ | PROT_WRITE), map[LEN - 1] = 1, msync(map, LEN, MS_ASYNC), said("stored, msync at once"), end("munmap");
    begin(PROT_READ | PROT_WRITE), map[5] = 1, set_back(), end("stored, times set back, munmap");
    begin(PROT_READ | PROT_WRITE), map[5] = 1, set_back();
    pid_t pid = fork();
    if (pid == 0) looks();
    waitpid(pid, 0, 0), said("stored, times set back, a child reads");
    if ((pid = fork()) == 0) exits();
    waitpid(pid, 0, 0), said("a child stores");
    munmap(map, LEN), close(fd);
    return 0;
}

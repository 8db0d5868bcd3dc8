// What a program does to all of its memory does not fill the image: mlockall, MAP_LOCKED, MAP_POPULATE, fork.
// ways: short both patched kernel host cached
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

static long status(const char *name) {
    char line[256];
    long value = -1;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        if (!strncmp(line, name, strlen(name)))
            sscanf(line + strlen(name) + 1, "%ld", &value);
    if (file)
        fclose(file);
    return value;
}

static void all(const char *what, int flags) {
    int result = mlockall(flags);
    printf("%s: %d %s, locked %s, resident %s\n", what, result, result ? strerror(errno) : "",
           status("VmLck") > 200000 ? "too much" : status("VmLck") > 0 ? "some" : "nothing",
           status("VmRSS") > 200000 ? "too much" : "little");
}

static int in_memory(char *map, int pages) {
    unsigned char there[256];
    int count = 0;
    if (mincore(map, pages * 4096, there))
        return -1;
    for (int i = 0; i < pages; i++)
        count += there[i] & 1;
    return count;
}

int main(void) {
    int file = open("f", O_RDWR | O_CREAT, 0644);
    char block[65536];
    memset(block, 'x', sizeof block);
    for (int i = 0; i < 16; i++)
        if (write(file, block, sizeof block) != sizeof block)
            perror("write");
    all("nothing", 0);
    all("on fault alone", MCL_ONFAULT);
    all("nonsense", 64);
    all("current", MCL_CURRENT);
    all("current on fault", MCL_CURRENT | MCL_ONFAULT);
    all("future", MCL_FUTURE);
    char *map = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    printf("mapped %d, there %d\n", map != MAP_FAILED, in_memory(map, 256));
    all("all", MCL_CURRENT | MCL_FUTURE);
    char *large = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    printf("what came after: there %d\n", in_memory(large, 256));
    int other = open("g", O_RDWR | O_CREAT, 0644);
    printf("written %zd\n", write(other, block, sizeof block));
    fflush(stdout);
    if (fork() == 0) {
        char *fresh = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        printf("child: locked %ld, there %d\n", status("VmLck"), in_memory(fresh, 256));
        fflush(stdout);
        _exit(0);
    }
    wait(0);
    int unlocked = munlockall();
    printf("munlockall %d, locked %ld\n", unlocked, status("VmLck"));
    all("current again", MCL_CURRENT);
    munlockall();
    char *locked = mmap(0, 1 << 20, PROT_READ, MAP_SHARED | MAP_LOCKED, file, 0);
    printf("MAP_LOCKED %d, locked %ld, there %d\n", locked != MAP_FAILED, status("VmLck"), in_memory(locked, 256));
    char *brought = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_POPULATE, file, 0);
    printf("MAP_POPULATE %d, there %d\n", brought != MAP_FAILED, in_memory(brought, 256));
    printf("MADV_POPULATE_READ %d, MADV_POPULATE_WRITE %d\n", madvise(map, 1 << 20, 22), madvise(map, 1 << 20, 23));
    return 0;
}

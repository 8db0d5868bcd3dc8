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

enum { PAGE = 4096, PAGES = 8, LEN = PAGES * PAGE };
static int fd;
static char *map;
static const struct timespec old[2] = {{1000000000, 0}, {1000000000, 0}};

static void set_back(void) {
    if (futimens(fd, old)) perror("futimens");
}

// A new file with old times, mapped.
static void begin(int prot) {
    unlink("f");
    fd = open("f", O_RDWR | O_CREAT, 0644);
    static char bytes[LEN];
    memset(bytes, 'x', sizeof bytes);
    if (write(fd, bytes, sizeof bytes) != sizeof bytes) perror("write");
    set_back();
    map = mmap(0, LEN, prot, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) perror("mmap");
}

static void said(const char *what) {
    struct stat st;
    if (stat("f", &st)) perror("stat");
    printf("%s: mtime %s, ctime %s\n", what, st.st_mtime == 1000000000 ? "old" : "new", st.st_ctime >= st.st_mtime ? "not before it" : "before it");
}

static void end(const char *what) {
    munmap(map, LEN);
    close(fd);
    said(what);
}

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

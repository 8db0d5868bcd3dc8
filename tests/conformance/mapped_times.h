// A file with old times that is mapped, and what its times are after that.
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
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

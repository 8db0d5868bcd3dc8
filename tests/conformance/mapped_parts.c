// Parts of a mapping that `mprotect` has given other rights have them also where their pages are put in place later: past
// the end of a file that grows, and after it was cut.
// ways: short both patched kernel host cached
#define _GNU_SOURCE
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 16 };
static sigjmp_buf back;

static void fault(int signal) { siglongjmp(back, signal); }

// r: it can be read, w: written; s, b: SIGSEGV, SIGBUS.
static char tried(volatile char *at, int write) {
    int signal = sigsetjmp(back, 1);
    if (signal)
        return signal == SIGSEGV ? 's' : 'b';
    if (write)
        *at = *at;
    else
        (void)*at;
    return write ? 'w' : 'r';
}

static void show(const char *what, char *map) {
    printf("%-28s", what);
    for (int page = 0; page < PAGES; page++)
        printf(" %c%c", tried(map + page * PAGE + 8, 0), tried(map + page * PAGE + 8, 1));
    puts("");
}

static void rights(char *map, int from, int to, int prot) {
    if (mprotect(map + from * PAGE, (to - from) * PAGE, prot))
        perror("mprotect");
}

int main(void) {
    signal(SIGSEGV, fault);
    signal(SIGBUS, fault);
    int fd = open("f", O_RDWR | O_CREAT, 0600);
    for (int shared = 0; shared < 2; shared++) {
        printf("-- %s\n", shared ? "shared" : "private");
        ftruncate(fd, 0);
        ftruncate(fd, 2 * PAGE);
        char *map = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, shared ? MAP_SHARED : MAP_PRIVATE, fd, 0);
        rights(map, 1, 2, PROT_READ);
        rights(map, 4, 6, PROT_NONE);
        rights(map, 8, 12, PROT_READ);
        rights(map, 9, 10, PROT_READ | PROT_WRITE);
        ftruncate(fd, PAGES * PAGE);
        show("grown", map);
        rights(map, 0, PAGES, PROT_READ | PROT_WRITE);
        show("all again", map);
        rights(map, 3, 7, PROT_READ);
        ftruncate(fd, PAGE);
        ftruncate(fd, PAGES * PAGE);
        if (shared)
            show("cut, and grown", map);
        // Back to one: it can be moved as a whole.
        rights(map, 0, PAGES, PROT_READ | PROT_WRITE);
        for (int turn = 0; turn < 3000; turn++) {
            rights(map, turn % PAGES, turn % PAGES + 1, PROT_NONE);
            rights(map, turn % PAGES, turn % PAGES + 1, PROT_READ | PROT_WRITE);
        }
        char *moved = mremap(map, PAGES * PAGE, (PAGES - 1) * PAGE, 0);
        printf("shrunk in place: %d\n", moved == map);
        moved = mremap(map, (PAGES - 1) * PAGE, (PAGES - 2) * PAGE, MREMAP_MAYMOVE);
        printf("still one: %d\n", moved == map);
        memcpy(map, "stored", 6);
        munmap(map, PAGES * PAGE);
    }
    char text[7] = "";
    pread(fd, text, 6, 0);
    printf("%s\n", text);
    int reader = open("f", O_RDONLY);
    char *map = mmap(NULL, PAGES * PAGE, PROT_READ, MAP_SHARED, reader, 0);
    rights(map, 2, 3, PROT_NONE);
    printf("to be written: %d\n", mprotect(map, PAGE, PROT_READ | PROT_WRITE));
    munmap(map + PAGE, PAGE);
    rights(map, 2, 3, PROT_READ);
    printf("%c%c%c%c\n", tried(map, 0), tried(map, 1), tried(map + 2 * PAGE, 0), tried(map + 2 * PAGE, 1));
    return 0;
}

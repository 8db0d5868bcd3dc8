// Runs in the virtual machine.
//
//     calls look FS DIR       each call, 64 times to warm up, then LOOKS times between marks
//     calls search FS DIR N   `grep -r` through N files of 3 KiB, a hundred to a directory, its fetches simulated
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "marks.h"

enum { FILES = 64, WARM = 64, LOOKS = 5 };

static struct stat st;
static char block[4096] __attribute__((aligned(4096)));
static char files[FILES][32], missing[FILES][32], fresh[WARM + LOOKS][32], moved[WARM + LOOKS][32];
static int data, rising;

static void good(long result, const char *what) {
    if (result < 0) perror(what), exit(1);
}

static void mark_file_system(const char *name) {
#define FS(number, text) \
    if (!strcmp(name, text)) MARK(number);
    FILE_SYSTEMS(FS)
}

static long make(const char *name) { return open(name, O_WRONLY | O_CREAT | O_EXCL, 0644); }

// One call, of a number that the compiler knows.
static inline __attribute__((always_inline)) long call(int number, int i) {
    switch (number) {
    case 1: return syscall(SYS_getppid);
    case 2: return stat(files[i % FILES], &st);
    case 3: return access(files[i % FILES], F_OK);
    case 4: return stat(missing[i % FILES], &st) < 0 ? 0 : -1;
    case 5: return close(open(files[i % FILES], O_RDONLY));
    case 6: return close(make(fresh[i]));
    case 7: return rename(fresh[i], moved[i]);
    case 8: return unlink(moved[i]);
    case 9: return mkdir(fresh[i], 0755);
    case 10: return rmdir(fresh[i]);
    case 11: return pread(data, block, 4096, i % 64 * 4096);
    case 12: return pwrite(data, block, 4096, i % 64 * 4096);
    case 13: return write(rising, block, 4096);
    }
    return -1;
}

static void look(const char *file_system) {
    data = open("data", O_RDWR | O_CREAT, 0644), good(data, "data");
    rising = open("rising", O_WRONLY | O_CREAT | O_APPEND, 0644), good(rising, "rising");
    for (int i = 0; i < 64; i++) good(pwrite(data, block, 4096, i * 4096), "pwrite");
    for (int i = 0; i < FILES; i++) {
        sprintf(files[i], "entry%07d", i), sprintf(missing[i], "none%07d", i);
        good(close(make(files[i])), files[i]);
    }
    for (int i = 0; i < WARM + LOOKS; i++) sprintf(fresh[i], "new%07d", i), sprintf(moved[i], "moved%07d", i);
    MARK(ARM_TRACE);
    usleep(1000);
    mark_file_system(file_system);
#define ONE(number, text)                             \
    for (int i = 0; i < WARM; i++) good(call(number, i), text); \
    for (int i = WARM; i < WARM + LOOKS; i++) {       \
        MARK(number);                                 \
        long result = call(number, i);                \
        MARK(END);                                    \
        good(result, text);                           \
    }
    CALLS(ONE)
    close(data), close(rising);
}

static void tree(const char *top, int count) {
    char name[4096];
    memset(block, 'a', sizeof block);
    good(mkdir(top, 0755), top);
    for (int i = 0; i < count; i++) {
        if (i % 100 == 0) sprintf(name, "%s/dir%05d", top, i / 100), good(mkdir(name, 0755), name);
        sprintf(name, "%s/dir%05d/file%07d", top, i / 100, i);
        int fd = make(name);
        good(fd, name);
        for (int at = 63; at < 3072; at += 64) block[at] = '\n';
        good(write(fd, block, 3072), name);
        close(fd);
    }
}

static void simulate(char *directory, int looked) {
    char *words[] = {"/bin/grep", "-r", "needle", directory, NULL};
    int status = 0;
    if (looked) MARK(CACHE_BEGIN);
    pid_t child = vfork();
    if (child == 0) execv(words[0], words), _exit(127);
    waitpid(child, &status, 0);
    MARK(END);
    // It finds nothing, which is 1.
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 1) fprintf(stderr, "grep: %x\n", status), exit(1);
}

// An empty directory first, which costs what starting costs; and before that once without a look, as others have used what is shared.
static void search(const char *file_system, const char *top, int count) {
    char empty[256], full[256];
    snprintf(empty, sizeof empty, "%s/empty", top), snprintf(full, sizeof full, "%s/tree", top);
    good(mkdir(empty, 0755), empty);
    tree(full, count);
    simulate(empty, 0);
    MARK(ARM_CACHE);
    usleep(1000);
    mark_file_system(file_system);
    simulate(empty, 1);
    simulate(full, 1);
    MARK(DISARM);
    usleep(1000);
}

int main(int count, char **words) {
    if (count == 5 && !strcmp(words[1], "search")) return search(words[2], words[3], atoi(words[4])), 0;
    if (count != 4 || strcmp(words[1], "look")) return fprintf(stderr, "calls: see calls.c\n"), 2;
    good(chdir(words[3]), words[3]);
    look(words[2]);
    return 0;
}

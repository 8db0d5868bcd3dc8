// ways: short
// flags: -O1 -static
// seconds: 120
// A static program's calls, each made thousands of times with arguments of chance, answer as on tmpfs: names, contents, maps,
// and a process that is killed meanwhile. Method: what they answer goes into a number that is printed after every 500 of them.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static unsigned long seed = 42, told;
static unsigned chance(unsigned below) {
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return (seed >> 20) % below;
}
static void tell(long value) { told = (told ^ (value < 0 ? 1000 + errno : value)) * 0x100000001b3; }
static void name(char *at) {
    static const char *const parts[] = {"a", "b", "c", "d", "a/x", "a/y", "b/x", "b/a/z", "c/x", "l", "l/x", "none/x"};
    strcpy(at, parts[chance(12)]);
}
static void tell_names(const char *path) {
    struct dirent *entry;
    unsigned long all = 0;
    DIR *dir = opendir(path);
    if (!dir) return tell(-1);
    while ((entry = readdir(dir))) {
        unsigned long one = entry->d_type;
        for (char *at = entry->d_name; *at; at++) one = one * 31 + *at;
        all += one * one;
    }
    closedir(dir), tell(all & 0x7fffffff);
}
static void step(void) {
    char one[40], other[40], text[5000];
    struct stat st;
    name(one), name(other);
    unsigned at = chance(20000), len = chance(5000), what = chance(18);
    int fd = what > 11 ? open(one, O_RDWR) : -1;
    memset(text, 'a' + at % 26, sizeof text);
    switch (what) {
    case 0: case 1: tell(fd = open(one, O_CREAT | O_RDWR | (chance(3) ? 0 : O_EXCL), 0600 + chance(2))); break;
    case 2: tell(mkdir(one, 0700 + chance(8))); break;
    case 3: tell(unlink(one)); break;
    case 4: tell(rmdir(one)); break;
    case 5: tell(rename(one, other)); break;
    case 6: tell(link(one, other)); break;
    case 7: tell(symlink(other, chance(3) ? one : "l")); break;
    case 8: tell(readlink(one, text, sizeof text)); break;
    case 9: tell_names(one); break;
    case 10: tell(truncate(one, at)); break;
    case 11: tell(renameat2(AT_FDCWD, one, AT_FDCWD, other, 1 + chance(2))); break;
    case 12: case 13: tell(pwrite(fd, text, len, at)); break;
    case 14: {
        long got = pread(fd, text, len, at), sum = got;
        for (long i = 0; i < got; i++) sum = sum * 131 + text[i];
        tell(got < 0 ? got : sum & 0x7fffffff);
        break;
    }
    case 15: tell(ftruncate(fd, at)); break;
    case 16: tell(fchmod(fd, 0600 + chance(64))); break;
    case 17: {
        char *map = fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_size < 4096 ? MAP_FAILED : mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (map != MAP_FAILED) memset(map + at % 2000, 'M', 50), munmap(map, 4096);
        break;
    }
    }
    if (fd >= 0) close(fd);
    int found = lstat(one, &st);
    tell(found), tell(found ? 0 : st.st_mode);
    if (!found && S_ISREG(st.st_mode)) tell(st.st_size), tell(st.st_nlink);
}
int main(void) {
    for (int i = 1; i <= 12000; i++) {
        step();
        if (i % 500 == 0) printf("%d %lx\n", i, told), fflush(stdout);
    }
    // Killed at any moment; what is there is whole, and others go on.
    if (mkdir("k", 0700) || chdir("k")) return 1;
    for (int round = 0; round < 15; round++) {
        int child = fork(), status;
        if (!child) for (;;) step();
        usleep(2000 + round * 1000), kill(child, SIGKILL), waitpid(child, &status, 0);
        struct stat st;
        int fd = open("after", O_CREAT | O_RDWR | O_TRUNC, 0600);
        if (write(fd, "x", 1) != 1 || fstat(fd, &st) || st.st_size != 1 || close(fd)) printf("after a death: %m\n");
    }
    if (chdir("..")) return 2;
    printf("rm %d\n", system("rm -r k"));
    return 0;
}

// Threads with stacks of 16 KiB, the least that there is, get along with every call.
// ways: short both patched kernel
// always: patched
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

extern char **environ;
static char big[PATH_MAX];

static int spawned(void) {
    char *argv[] = {"true", 0};
    pid_t child;
    int status = -1, result = posix_spawn(&child, "/bin/true", 0, 0, argv, environ);
    waitpid(child, &status, 0);
    return result | status;
}

static int work(int which) {
    struct stat st;
    struct flock lock = {F_WRLCK, SEEK_SET, 0, 0};
    int fd, status, result = 0;
    pid_t child;
    DIR *dir;
    switch (which) {
    case 0:
        fd = open("a", O_CREAT | O_RDWR, 0644);
        result = write(fd, "x", 1) - 1 | pwrite(fd, big, 4000, 5) - 4000 | ftruncate(fd, 3) | fsync(fd);
        close(fd);
        return result;
    case 1: return stat("a", &st) | stat("../w/a", &st);
    case 2: return rename("a", "b") | rename("b", "a");
    case 3: return mkdir("d", 0755) | rmdir("d");
    case 4: return symlink("a", "s") | readlink("s", big, 100) - 1 | stat("s", &st) | unlink("s");
    case 5: return realpath("a", big) == 0;
    case 6:
        dir = opendir(".");
        while (readdir(dir)) result++;
        closedir(dir);
        return result < 3;
    case 7: {
        fd = open("a", O_RDWR);
        void *at = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        close(fd);
        return at == MAP_FAILED ? 1 : munmap(at, 4096);
    }
    case 8: return getcwd(big, sizeof big) == 0;
    case 9: return setxattr("a", "user.x", "y", 1, 0) | getxattr("a", "user.x", big, 10) - 1;
    case 10: return link("a", "l") | unlink("l");
    case 11:
        child = fork();
        if (child == 0) _exit(stat("a", &st));
        waitpid(child, &status, 0);
        return status;
    case 12: return spawned();
    case 13: return system("exit 3") >> 8 != 3;
    case 14:
        fd = open("a", O_RDWR);
        result = fcntl(fd, F_SETLK, &lock);
        close(fd);
        return result;
    case 15: return chdir(".") | chdir("../w");
    case 16:
        fd = open(".", O_TMPFILE | O_RDWR, 0644);
        result = fallocate(fd, 0, 0, 1 << 20);
        close(fd);
        return result;
    default: return -1;
    }
}

static void *in_thread(void *which) { return (void *)(long)work((long)which); }

int main(void) {
    work(0);
    for (long which = 0; which < 17; which++) {
        pid_t child = fork();
        if (child == 0) {
            pthread_attr_t small;
            pthread_t thread;
            void *result = (void *)1;
            pthread_attr_init(&small);
            pthread_attr_setstacksize(&small, 16384);
            pthread_create(&thread, &small, in_thread, (void *)which);
            pthread_join(thread, &result);
            _exit(result != 0);
        }
        int status;
        waitpid(child, &status, 0);
        printf("%ld: %d\n", which, status);
    }
    return 0;
}

// Threads with a working directory and a mask of their own (unshare(CLONE_FS)): each makes, finds and lists by its own, and so
// do its children; a program with one thread may have all of its own.
// ways: both kernel
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static pthread_barrier_t together;
static char told[3][4096], top[4096];

static void *one(void *argument) {
    long i = (long)argument;
    char *out = told[i], name[64], text[8], here[4096];
    if (i) {
        if (unshare(CLONE_FS)) out += sprintf(out, "refused: %s\n", strerrorname_np(errno));
        sprintf(name, "t%ld", i);
        // By a path that is relative, absolute, or a descriptor.
        if (i == 1) {
            chdir(name);
        } else {
            int fd = open(name, O_RDONLY | O_DIRECTORY);
            fchdir(fd);
            close(fd);
        }
        umask(i == 1 ? 077 : 007);
    }
    pthread_barrier_wait(&together);
    int fd = open("made", O_CREAT | O_WRONLY, 0666);
    write(fd, text, sprintf(text, "%ld\n", i));
    close(fd);
    mkdir("dir", 0777);
    sprintf(here, "%s/by%ld", top, i);
    close(open(here, O_CREAT | O_WRONLY, 0666));
    pthread_barrier_wait(&together);
    struct stat file = {0}, dir = {0}, up = {0};
    stat("made", &file), stat("dir", &dir), stat("..", &up);
    getcwd(here, sizeof here);
    out += sprintf(out, "%ld: %s %ld %o %o %s\n", i, strrchr(here, '/'), (long)file.st_size, file.st_mode, dir.st_mode,
                   access("../t1", F_OK) ? "outside" : "inside");
    chdir("dir");
    close(open("deeper", O_CREAT | O_WRONLY, 0666));
    int ends[2], status;
    pipe(ends);
    pid_t child = fork();
    if (!child) {
        dup2(ends[1], 1);
        execl("/bin/sh", "sh", "-c", "pwd -P | sed 's,.*/w,w,'; umask; ls; echo child >child; cat ../made", (char *)0);
    }
    close(ends[1]);
    waitpid(child, &status, 0);
    for (ssize_t got; (got = read(ends[0], out, 1000)) > 0;) out += got;
    close(ends[0]);
    pthread_barrier_wait(&together);
    return 0;
}

int main(void) {
    getcwd(top, sizeof top);
    printf("alone: %d\n", unshare(CLONE_FS | CLONE_FILES));
    mkdir("t1", 0755), mkdir("t2", 0755);
    pthread_barrier_init(&together, 0, 3);
    pthread_t threads[2];
    for (long i = 1; i < 3; i++) pthread_create(&threads[i - 1], 0, one, (void *)i);
    one(0);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], 0);
    for (int i = 0; i < 3; i++) printf("%s", told[i]);
    chdir("..");
    printf("%d\n", rmdir("dir") ? errno : 0);
    return 0;
}

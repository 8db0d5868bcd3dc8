/* Directory streams. */
#include "t.h"
#include <dirent.h>

static char *names[20000];
static int count;

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* Everything that is left in the stream, sorted. */
static void all(DIR *d, int print) {
    struct dirent *e;
    count = 0;
    errno = 0;
    while ((e = readdir(d))) {
        char text[300];
        snprintf(text, sizeof text, "%s:%d", e->d_name, e->d_type);
        names[count++] = strdup(text);
    }
    int code = errno;
    qsort(names, count, sizeof *names, by_name);
    unsigned long sum = 0;
    for (int i = 0; i < count; i++) {
        for (char *c = names[i]; *c; c++)
            sum = sum * 31 + *c;
        if (print)
            say("  %s", names[i]);
        free(names[i]);
    }
    say("%d entries, sum %lx, errno %d", count, sum, code);
}

static int no_dots(const struct dirent *e) { return e->d_name[0] != '.'; }

int main(int argc, char **argv) {
    begin(argc, argv);
    DIR *d = opendir(".");
    say("number %d cloexec %d", dirfd(d), fcntl(dirfd(d), F_GETFD));
    all(d, 1);
    mkdir("sub", 0755);
    close(open("file", O_CREAT | O_WRONLY, 0644));
    symlink("file", "link");
    mkfifo("fifo", 0644);
    rewinddir(d);
    all(d, 1);
    R(closedir(d));
    P(opendir("none"));
    P(opendir(""));
    P(opendir("file"));
    P(opendir("link"));
    P(opendir("fifo"));
    P(opendir("file/x"));

    char name[300];
    for (int i = 0; i < 5000; i++) {
        snprintf(name, sizeof name, "sub/entry-%d", i);
        close(open(name, O_CREAT | O_WRONLY, 0644));
    }
    d = opendir("sub");
    all(d, 0);
    rewinddir(d);
    long at[5000];
    char *seen[5000];
    struct dirent *e;
    int n = 0;
    at[0] = telldir(d);
    while ((e = readdir(d)) && n < 4999) {
        seen[n++] = strdup(e->d_name);
        at[n] = telldir(d);
    }
    int wrong = 0;
    for (int i = 0; i < n; i += 97) {
        seekdir(d, at[i]);
        e = readdir(d);
        wrong += !e || strcmp(e->d_name, seen[i]);
    }
    say("seekdir wrong %d of %d", wrong, n);
    rewinddir(d);
    struct dirent entry, *result;
    int got = 0;
    while (readdir_r(d, &entry, &result) == 0 && result)
        got++;
    say("readdir_r %d", got);
    R(closedir(d));

    int fd = open("sub", O_RDONLY | O_DIRECTORY);
    d = fdopendir(fd);
    R(dirfd(d) - fd);
    R(openat(dirfd(d), "entry-1", O_RDONLY) > 0);
    all(d, 0);
    R(closedir(d));
    R(close(fd));
    fd = open("file", O_RDONLY);
    P(fdopendir(fd));
    R(close(fd));
    P(fdopendir(77));

    struct dirent **list;
    int len = scandir("sub", &list, no_dots, alphasort);
    say("scandir %d first %s last %s", len, list[0]->d_name, list[len - 1]->d_name);
    for (int i = 0; i < len; i++)
        free(list[i]);
    free(list);
    len = scandir("sub", &list, NULL, versionsort);
    say("scandir %d third %s last %s", len, list[2]->d_name, list[len - 1]->d_name);
    for (int i = 0; i < len; i++)
        free(list[i]);
    free(list);
    R(scandir("none", &list, NULL, NULL));
    fd = open(".", O_RDONLY);
    len = scandirat(fd, "sub", &list, no_dots, alphasort);
    say("scandirat %d", len);

    /* Removing while reading: every name is met once. */
    d = opendir("sub");
    int removed = 0;
    while ((e = readdir(d)))
        if (e->d_name[0] != '.') {
            snprintf(name, sizeof name, "sub/%s", e->d_name);
            removed += unlink(name) == 0;
        }
    R(closedir(d));
    say("removed %d", removed);
    /* A directory that is gone has no entries. */
    d = opendir("sub");
    R(rmdir("sub"));
    errno = 0;
    P(readdir(d));
    R(closedir(d));
    char block[1024];
    fd = open(".", O_RDONLY | O_DIRECTORY);
    R(getdents64(fd, block, sizeof block) > 0);
    R(getdents64(fd, block, 8));
    R(close(fd));
    fd = open("file", O_RDONLY);
    R(getdents64(fd, block, sizeof block));
    /* The kernel's own directories. */
    d = opendir("/proc/self/attr");
    all(d, 0);
    R(closedir(d));
    /* fork shares the position, not the buffer. */
    mkdir("few", 0755);
    close(open("few/a", O_CREAT, 0644));
    d = opendir("few");
    P(readdir(d));
    fflush(NULL);
    if (fork() == 0) {
        rewinddir(d);
        all(d, 1);
        _exit(closedir(d));
    }
    int status;
    wait(&status);
    say("child %x", status);
    R(closedir(d));
    return 0;
}

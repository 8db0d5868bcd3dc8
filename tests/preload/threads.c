/* Threads that open, read, list and walk at the same time, and one stream that all write to. */
#include "t.h"
#include <dirent.h>
#include <ftw.h>
#include <limits.h>
#include <pthread.h>

enum { THREADS = 6, ROUNDS = 150 };
static FILE *shared;
static __thread long seen;

static int visit(const char *path, const struct stat *st, int flag, struct FTW *at) {
    seen++;
    return 0;
}

static void *work(void *argument) {
    long id = (long)argument, bad = 0;
    char dir[40], name[80], line[80], real[PATH_MAX];
    snprintf(dir, sizeof dir, "t%ld", id);
    bad += mkdir(dir, 0755) != 0;
    for (int i = 0; i < ROUNDS; i++) {
        snprintf(name, sizeof name, "%s/f%d", dir, i);
        FILE *f = fopen(name, "w+");
        if (!f) {
            bad++;
            continue;
        }
        fprintf(f, "%ld %d\n", id, i);
        rewind(f);
        long a = -1;
        int b = -1;
        bad += fscanf(f, "%ld %d", &a, &b) != 2 || a != id || b != i;
        bad += fclose(f) != 0;
        fprintf(shared, "%ld %d\n", id, i);
        FILE *log = fopen("log", "a");
        setvbuf(log, NULL, _IOFBF, 256);
        fprintf(log, "%ld %d\n", id, i);
        bad += fclose(log) != 0;
        DIR *d = opendir(dir);
        int n = 0;
        while (d && readdir(d))
            n++;
        bad += !d || closedir(d) != 0 || n != i + 3;
        bad += !realpath(name, real) || !strstr(real, name);
        snprintf(line, sizeof line, "%s/tmpXXXXXX", dir);
        int fd = mkstemp(line);
        bad += fd < 0 || write(fd, line, 10) != 10 || close(fd) != 0 || remove(line) != 0;
    }
    seen = 0;
    bad += nftw(dir, visit, 3, FTW_PHYS) != 0 || seen != ROUNDS + 1;
    return (void *)bad;
}

static long count(const char *path) {
    char line[100];
    long lines = 0;
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f))
        lines++;
    if (f)
        fclose(f);
    return lines;
}

int main(int argc, char **argv) {
    begin(argc, argv);
    shared = fopen("shared", "w");
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, work, (void *)i);
    for (int i = 0; i < THREADS; i++) {
        void *bad;
        pthread_join(threads[i], &bad);
        say("thread %d: %ld wrong", i, (long)bad);
    }
    R(fclose(shared));
    say("shared %ld log %ld", count("shared"), count("log"));
    int fd = open("last", O_CREAT | O_WRONLY, 0644);
    say("number %d", fd);
    return 0;
}

// A stream of the C library meets its first file of a mount in each way that a descriptor can come to be: the stream itself, open
// already on something else, is never opened anew.
// ways: short both host cached
// flags: -pthread
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static FILE *other;
static const char *self;

static void by_dup2(void) { dup2(open("f", O_RDWR | O_CREAT | O_TRUNC, 0644), fileno(other)); }
static void by_number(void) {
    close(fileno(other));
    open("f", O_RDWR | O_CREAT | O_TRUNC, 0644);
}
static void by_fcntl(void) {
    int fd = open("f", O_RDWR | O_CREAT | O_TRUNC, 0644), number = fileno(other);
    close(number);
    fcntl(fd, F_DUPFD, number);
}
static void by_directory(void) {
    int here = open(".", O_DIRECTORY), fd = openat(here, "f", O_RDWR | O_CREAT | O_TRUNC, 0644);
    dup2(fd, fileno(other));
}
static void by_exec(void) {
    dup2(open("f", O_RDWR | O_CREAT | O_TRUNC, 0644), 1);
    execl(self, self, "again", NULL);
    _exit(98);
}
static void by_vfork(void) {
    // What a child by vfork opens is its own; its parent opens the first one of its own later.
    pid_t child = vfork();
    if (child == 0) {
        dup2(open("f", O_RDWR | O_CREAT | O_TRUNC, 0644), 1);
        execl(self, self, "again", NULL);
        _exit(97);
    }
    waitpid(child, NULL, 0);
    dup2(open("f", O_RDWR | O_APPEND), fileno(other));
}

// A child is forked while another thread opens the first file: it has none of that thread, and its streams work.
static volatile int go;
static void *opens(void *name) {
    while (!go) {}
    close(open(name, O_RDWR | O_CREAT, 0644));
    return NULL;
}
static int fork_beside(int turn) {
    pthread_t thread;
    pthread_create(&thread, NULL, opens, "f");
    go = 1;
    for (volatile int i = 0; i < turn * 20; i++) {}
    pid_t child = fork();
    if (child == 0) {
        alarm(10);
        FILE *file = fopen("g", "w");
        _exit(!file || fprintf(file, "x") != 1 || fclose(file));
    }
    int status;
    waitpid(child, &status, 0);
    pthread_join(thread, NULL);
    return status != 0;
}

static const struct {
    const char *name;
    void (*come)(void);
} WAYS[] = {{"dup2", by_dup2},           {"number", by_number}, {"fcntl", by_fcntl},
            {"directory", by_directory}, {"exec", by_exec},     {"vfork", by_vfork}};

int main(int argc, char **argv) {
    char path[4096];
    if (argc > 2) return fork_beside(atoi(argv[2]));
    if (argc > 1) {
        printf("written by the program that was executed\n");
        fflush(stdout);
        if (lseek(1, 0, SEEK_SET) != 0) return 3;
        return 0;
    }
    path[readlink("/proc/self/exe", path, sizeof path - 1)] = 0;
    self = path;
    for (unsigned way = 0; way < sizeof WAYS / sizeof *WAYS; way++) {
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            other = fopen("/dev/null", "w+");
            WAYS[way].come();
            fprintf(other, "through a stream\n");
            fflush(other);
            rewind(other);
            char line[64] = "";
            char *got = fgets(line, sizeof line, other);
            fprintf(stderr, "%s", got ? "" : "nothing read\n");
            fseek(other, 0, SEEK_END);
            _exit(ftell(other) > 0 && got ? 0 : 1);
        }
        int status = 0;
        waitpid(child, &status, 0);
        printf("%s: %x\n", WAYS[way].name, status);
        FILE *result = fopen("f", "r");
        char line[128];
        while (result && fgets(line, sizeof line, result)) printf("  %s", line);
        if (result) fclose(result);
        remove("f");
    }
    int failed = 0;
    for (int turn = 0; turn < 200; turn++) {
        char number[12];
        snprintf(number, sizeof number, "%d", turn);
        pid_t child = fork();
        if (child == 0) {
            execl(self, self, "beside", number, NULL);
            _exit(96);
        }
        int status;
        waitpid(child, &status, 0);
        failed += status != 0;
    }
    printf("beside a fork: %d failed\n", failed);
}

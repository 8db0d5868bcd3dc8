/* Goal: a child by vfork shares its parent's memory, as the kernel's does, inherits what is ours, and changes
 * nothing of its parent's, whatever it does before it execs. Method: each thing such children do, alone and
 * together, from outside and from a directory inside; afterwards the parent's descriptors, directory and
 * handlers are looked at. At last beside threads that open and close files of ours all the time. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static FILE *report;
static char *base;
static volatile int seen, handled;

static char *in(const char *name) {
    static char paths[8][4096];
    static int next;
    char *at = paths[next++ % 8];
    snprintf(at, 4096, "%s/%s", base, name);
    return at;
}

static void handler(int signal) { handled++; }

static int status(pid_t pid) {
    int s = 0;
    if (waitpid(pid, &s, 0) != pid) return -1;
    return WIFEXITED(s) ? WEXITSTATUS(s) : 1000 + WTERMSIG(s);
}

static void show(const char *what, const char *path) {
    char text[4096], *at;
    int fd = open(path, O_RDONLY);
    ssize_t len = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0) close(fd);
    if (len < 0) { fprintf(report, "%s: %s\n", what, strerror(errno)); return; }
    text[len] = 0;
    fprintf(report, "%s: ", what);
    for (at = text; *at; at++) {
        if (!strncmp(at, base, strlen(base))) { fputs("BASE", report); at += strlen(base) - 1; }
        else fputc(*at == '\n' ? '|' : *at, report);
    }
    fputc('\n', report);
    truncate(path, 0);
}

/* Descriptors 3 to 8 as they are here: each open one's first line. */
static void numbers(const char *what) {
    char text[65] = "", cwd[4096];
    fprintf(report, "%s:", what);
    for (int fd = 3; fd < 9; fd++) {
        ssize_t len = pread(fd, text, sizeof text - 1, 0);
        if (len < 0) fprintf(report, " %s", errno == EBADF ? "-" : "?");
        else fprintf(report, " %.*s%s", (int)strcspn(text, "\n"), len ? text : "\n", fcntl(fd, F_GETFD) ? "*" : "");
    }
    if (!getcwd(cwd, sizeof cwd)) strcpy(cwd, strerror(errno));
    fprintf(report, " in %s\n", strncmp(cwd, base, strlen(base)) ? cwd : cwd + strlen(base));
}

#define SCRIPT(text) execl("/bin/sh", "sh", "-c", text, "sh", base, (char *)0)
/* What the program has inherited on 3 to 9, and where it is; to descriptor 1. */
#define TELL "for n in 3 4 5 6 7 8 9; do { IFS= read -r x <&$n && printf '%s ' \"$x\" || printf '%s ' -; } 2>/dev/null; done; pwd"
#define CHILD(what, ...) do { \
        pid_t pid; \
        for (int fd = 3; fd < 9; fd++) lseek(fd, 0, SEEK_SET); \
        seen = handled = 0; \
        pid = vfork(); \
        if (pid == 0) { __VA_ARGS__; _exit(99); } \
        int error = errno, s = pid < 0 ? -1 : status(pid); \
        fprintf(report, "%s: status %d", what, s); \
        if (pid < 0) fprintf(report, " (%s)", strerror(error)); \
        fputc('\n', report); \
        numbers("  parent"); \
    } while (0)

static void children(void) {
    char *out = strdup(in("out")), *inside = strdup(in("inside")), *none = strdup(in("none")), *program = strdup(in("program"));
    CHILD("shares memory", seen = 7; _exit(3));
    fprintf(report, "  seen %d\n", seen);
    CHILD("inherits", dup2(9, 1); SCRIPT(TELL));
    show("  told", out);
    CHILD("closes", close(3); close(5); dup2(9, 1); SCRIPT(TELL));
    show("  told", out);
    CHILD("closes a range", close_range(4, 6, 0); dup2(9, 1); SCRIPT(TELL));
    show("  told", out);
    CHILD("keeps and drops over exec", fcntl(7, F_SETFD, 0); fcntl(3, F_SETFD, FD_CLOEXEC); seen = 10 * fcntl(7, F_GETFD) + fcntl(3, F_GETFD);
          dup2(9, 1); SCRIPT(TELL));
    show("  told", out);
    fprintf(report, "  seen %d\n", seen);
    CHILD("puts the kernel's over ours", int null = open("/dev/null", O_RDONLY); dup2(null, 4); dup2(9, 1); SCRIPT(TELL));
    show("  told", out);
    CHILD("moves ours", dup2(3, 8); close(3); dup2(9, 1); SCRIPT(TELL));
    show("  told", out);
    CHILD("leaves", chdir("/usr"); dup2(9, 1); SCRIPT(TELL));
    show("  told", out);
    CHILD("leaves by descriptor", int usr = open("/usr", O_RDONLY | O_CLOEXEC); fchdir(usr); dup2(9, 1); SCRIPT(TELL));
    show("  told", out);
    CHILD("closes, leaves, enters", close(3); chdir("/usr"); chdir(inside); dup2(9, 1); SCRIPT(TELL));
    show("  told", out);
    CHILD("closes, reuses, opens ours", close(3); open("/dev/null", O_RDONLY); close(4); open(in("five"), O_RDONLY); dup2(9, 1); SCRIPT(TELL));
    show("  told", out);
    CHILD("writes itself", write(9, "itself\n", 7); dprintf(9, "%d\n", (int)(getppid() == getpgid(0))); _exit(4));
    show("  wrote", out);
    CHILD("makes names", seen = mkdir(in("made"), 0700); rename(in("made"), in("moved")); _exit(0));
    fprintf(report, "  moved %d\n", rmdir(in("moved")));
    CHILD("reads on", char c; read(3, &c, 1); seen = c; _exit(0));
    fprintf(report, "  offset %ld\n", (long)lseek(3, 0, SEEK_CUR));
    CHILD("no such program", execl("/usr/bin/none-such", "none", (char *)0); _exit(10 + (errno == ENOENT)));
    CHILD("no such program inside", execl(none, "none", (char *)0); _exit(10 + (errno == ENOENT)));
    CHILD("searches", close(3); execlp("none-such-either", "none", (char *)0); dup2(9, 1); execlp("sh", "sh", "-c", TELL, (char *)0));
    show("  told", out);
    CHILD("not there, then opens ours", close(3); execl("/usr/bin/none-such", "none", (char *)0); close(4); open(in("five"), O_RDONLY); dup2(9, 1);
          SCRIPT(TELL));
    show("  told", out);
    CHILD("a program inside", close(3); dup2(9, 1); execl(program, "program", (char *)0));
    show("  told", out);
    CHILD("clears its environment", char *none[] = {NULL}; char *argv[] = {"sh", "-c", TELL, NULL}; dup2(9, 1); execve("/bin/sh", argv, none));
    show("  told", out);
    CHILD("default handler", signal(SIGUSR1, SIG_DFL); kill(getpid(), SIGUSR1); _exit(5));
    raise(SIGUSR1);
    fprintf(report, "  handled %d\n", handled);
    CHILD("own handler", signal(SIGUSR1, SIG_IGN); signal(SIGUSR2, handler); raise(SIGUSR2); _exit(5));
    raise(SIGUSR1);
    struct sigaction action;
    sigaction(SIGUSR2, NULL, &action);
    fprintf(report, "  handled %d default %d\n", handled > 0, action.sa_handler == SIG_DFL);
    CHILD("killed", kill(getpid(), SIGKILL));
    CHILD("session, then ours", setsid(); write(9, "x", 1); _exit(getsid(0) == getpid() && getpgid(0) == getpid()));
    CHILD("group, then ours", setpgid(0, 0); write(9, "x", 1); _exit(getsid(0) != getpid() && getpgid(0) == getpid()));
    CHILD("forks", pid_t pid = fork(); if (pid == 0) { write(9, "y", 1); _exit(6); } _exit(status(pid)));
    CHILD("vforks", pid_t pid = vfork(); if (pid == 0) { close(3); _exit(8); } _exit(status(pid)));
    CHILD("other identity", if (!geteuid()) setuid(65534); seen = access("/usr", R_OK); close(3); _exit(geteuid() != 0));
    CHILD("other identity, then ours", if (!geteuid()) setuid(65534); int fd = open(in("private"), O_RDONLY); _exit(fd < 0 ? errno : 0));
    int fd = open(in("private"), O_RDONLY);
    fprintf(report, "  ours still: %d\n", fd < 0 ? errno : close(fd));
}

static volatile int stop;

static void *opens(void *argument) {
    char path[4096];
    snprintf(path, sizeof path, "%s/thread%d", base, (int)(long)argument);
    while (!stop) {
        int fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
        if (fd < 0 || write(fd, "x", 1) != 1) _exit(77);
        close(fd);
    }
    return NULL;
}

int main(int argc, char **argv) {
    base = argv[1];
    close_range(3, ~0U, 0);
    report = fopen(argv[2], "w");
    dup2(fileno(report), 20);
    fcntl(20, F_SETFD, FD_CLOEXEC);
    fclose(report);
    report = fdopen(20, "w");
    mkdir(in("inside"), 0777);
    int fd = open(in("program"), O_CREAT | O_WRONLY, 0755);
    dprintf(fd, "#!/bin/sh\n%s\n", TELL);
    close(fd);
    close(open(in("private"), O_CREAT | O_WRONLY, 0600));
    static const char *names[] = {"three", "four", "five", "six", "seven"};
    for (int i = 0; i < 5; i++) {
        fd = open(in(names[i]), O_CREAT | O_RDWR | (i == 4 ? O_CLOEXEC : 0), 0644);
        dprintf(fd, "%s\n", names[i]);
        if (fd != 3 + i) { dup3(fd, 3 + i, i == 4 ? O_CLOEXEC : 0); close(fd); }
    }
    fd = open(in("out"), O_CREAT | O_RDWR | O_APPEND | O_CLOEXEC, 0666);
    if (fd != 9) { dup3(fd, 9, O_CLOEXEC); close(fd); }
    signal(SIGUSR1, handler);
    if (chdir("/tmp")) return 1;
    children();
    fprintf(report, "inside\n");
    if (chdir(in("inside"))) return 1;
    children();

    pthread_t threads[2];
    for (long i = 0; i < 2; i++) pthread_create(&threads[i], NULL, opens, (void *)i);
    int right = 0, told;
    for (int round = 0; round < 60; round++) {
        lseek(5, 0, SEEK_SET);
        pid_t pid = vfork();
        if (pid == 0) {
            close(3);
            if (round % 3 == 1) write(9, "", 0);
            execl("/bin/sh", "sh", "-c", "read x <&5 && test \"$x\" = five && ! { true <&3; } 2>/dev/null && test -e ../five", (char *)0);
            _exit(98);
        }
        told = status(pid);
        right += told == 0;
    }
    stop = 1;
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    fprintf(report, "beside threads: %d of 60\n", right);
    numbers("parent");
    return 0;
}

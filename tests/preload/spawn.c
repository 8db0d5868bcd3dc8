/* Goal: children started in every way see the files, descriptors and working
 * directory of the parent. Method: posix_spawn with file actions, system, popen,
 * exec* in all forms, vfork, from outside and from a directory inside; what the children write is read back. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static FILE *report;
static char *base;

static char *in(const char *name) {
    static char paths[8][4096];
    static int next;
    char *at = paths[next++ % 8];
    snprintf(at, 4096, "%s/%s", base, name);
    return at;
}

/* The contents of a file, with the directory's name made neutral. */
static void show(const char *what, const char *name) {
    char text[8192], *at;
    int fd = open(in(name), O_RDONLY);
    ssize_t len = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0) close(fd);
    if (len < 0) { fprintf(report, "%s: %s\n", what, strerror(errno)); return; }
    text[len] = 0;
    fprintf(report, "%s: ", what);
    for (at = text; *at; at++) {
        if (!strncmp(at, base, strlen(base))) { fputs("BASE", report); at += strlen(base) - 1; }
        else if (*at == '\n') fputc('|', report);
        else fputc(*at, report);
    }
    fputc('\n', report);
}

static int status(pid_t pid) {
    int s = 0;
    waitpid(pid, &s, 0);
    return WIFEXITED(s) ? WEXITSTATUS(s) : 1000 + WTERMSIG(s);
}

static void spawned(const char *what, posix_spawn_file_actions_t *actions, const char *script) {
    char *argv[] = {"sh", "-c", (char *)script, NULL};
    pid_t pid;
    int error = posix_spawn(&pid, "/bin/sh", actions, NULL, argv, environ);
    fprintf(report, "%s: error %d status %d\n", what, error, error ? -1 : status(pid));
}

static int cloned(void *argument) {
    int fd = open(in("cloned"), O_CREAT | O_WRONLY, 0644);
    write(fd, argument, strlen(argument));
    close(fd);
    return 6;
}

static volatile int done;

static void *opens(void *path) {
    while (!done) {
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        close(dup(fd));
        close(fd);
    }
    return NULL;
}

int main(int argc, char **argv) {
    base = argv[1];
    report = argc > 2 ? fopen(argv[2], "w") : stdout;
    setvbuf(report, NULL, _IOLBF, 0);
    int fd = open(in("f"), O_CREAT | O_RDWR, 0644), other = open(in("g"), O_CREAT | O_RDWR | O_CLOEXEC, 0644);
    write(fd, "0123456789", 10);
    lseek(fd, 2, SEEK_SET);
    char script[8192];

    posix_spawn_file_actions_t a;
    posix_spawn_file_actions_init(&a);
    posix_spawn_file_actions_addopen(&a, 1, in("out"), O_CREAT | O_WRONLY | O_TRUNC, 0644);
    posix_spawn_file_actions_adddup2(&a, 1, 2);
    posix_spawn_file_actions_adddup2(&a, fd, 0);
    posix_spawn_file_actions_addchdir_np(&a, base);
    snprintf(script, sizeof script, "dd bs=1 count=3 2>/dev/null; echo err >&2; pwd; ls -d f; test -e /dev/fd/%d && echo leaked; exit 4", other);
    spawned("actions", &a, script);
    show("out", "out");
    fprintf(report, "offset %ld\n", (long)lseek(fd, 0, SEEK_CUR));
    posix_spawn_file_actions_destroy(&a);

    posix_spawn_file_actions_init(&a);
    posix_spawn_file_actions_adddup2(&a, other, other);
    posix_spawn_file_actions_addclose(&a, fd);
    snprintf(script, sizeof script, "echo kept >&%d; echo no 2>/dev/null >&%d || echo closed >>%s", other, fd, in("g"));
    spawned("same number", &a, script);
    show("g", "g");
    posix_spawn_file_actions_addopen(&a, 1, in("none/such"), O_WRONLY, 0);
    spawned("action fails", &a, "true");
    posix_spawn_file_actions_destroy(&a);
    pid_t pid;
    char *none[] = {"none", NULL};
    fprintf(report, "missing %d %d %d\n", posix_spawn(&pid, in("none"), NULL, NULL, none, environ),
            posix_spawnp(&pid, "no-such-program", NULL, NULL, none, environ), posix_spawn(&pid, in("f"), NULL, NULL, none, environ));

    posix_spawnattr_t attr;
    sigset_t set;
    posix_spawnattr_init(&attr);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
    posix_spawnattr_setpgroup(&attr, 0);
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    posix_spawnattr_setsigmask(&attr, &set);
    char *masked[] = {"sh", "-c", "grep SigBlk /proc/self/status; test $$ = $(ps -o pgid= $$ 2>/dev/null || cut -d' ' -f5 /proc/$$/stat) && echo group", NULL};
    posix_spawn_file_actions_init(&a);
    posix_spawn_file_actions_addopen(&a, 1, in("attr"), O_CREAT | O_WRONLY, 0644);
    fprintf(report, "attr %d", posix_spawn(&pid, "/bin/sh", &a, &attr, masked, environ));
    fprintf(report, " %d\n", status(pid));
    show("attr", "attr");

    snprintf(script, sizeof script, "cd %s && echo system >sys && exit 9", base);
    fprintf(report, "system %d %d\n", WEXITSTATUS(system(script)), system(NULL) != 0);
    show("sys", "sys");
    snprintf(script, sizeof script, "cat %s; exit 2", in("sys"));
    FILE *p = popen(script, "r");
    char line[100] = "";
    fgets(line, sizeof line, p);
    fprintf(report, "popen %d %s", WEXITSTATUS(pclose(p)), line);
    snprintf(script, sizeof script, "cat >%s", in("piped"));
    p = popen(script, "w");
    FILE *q = popen("cat", "re");
    fprintf(p, "through a pipe\n");
    fprintf(report, "popen %d\n", pclose(p));
    pclose(q);
    show("piped", "piped");

    /* exec in all forms; a scrubbed environment */
    snprintf(script, sizeof script, "echo \"$0 $*\" >>%s; cat %s >/dev/null || echo cannot >>%s", in("exec"), in("f"), in("exec"));
    char *args[] = {"sh", "-c", script, "v", "1", NULL}, *empty[] = {"PATH=/usr/bin:/bin", NULL};
    if ((pid = fork()) == 0) { execl("/bin/sh", "sh", "-c", script, "execl", "1", "2", "3", "4", "5", "6", (char *)0); _exit(99); }
    fprintf(report, "execl %d\n", status(pid));
    if ((pid = fork()) == 0) { execle("/bin/sh", "sh", "-c", script, "execle", "1", (char *)0, empty); _exit(99); }
    fprintf(report, "execle %d\n", status(pid));
    if ((pid = vfork()) == 0) { execlp("sh", "sh", "-c", script, "execlp", (char *)0); _exit(99); }
    fprintf(report, "execlp %d\n", status(pid));
    if ((pid = vfork()) == 0) { execv("/bin/sh", args); _exit(99); }
    fprintf(report, "execv %d\n", status(pid));
    if ((pid = fork()) == 0) { execve("/bin/sh", args, empty); _exit(99); }
    fprintf(report, "execve %d\n", status(pid));
    if ((pid = fork()) == 0) { execvp("sh", args); _exit(99); }
    fprintf(report, "execvp %d\n", status(pid));
    if ((pid = fork()) == 0) { execvpe("sh", args, empty); _exit(99); }
    fprintf(report, "execvpe %d\n", status(pid));
    if ((pid = fork()) == 0) { fexecve(open("/bin/sh", O_RDONLY), args, environ); _exit(99); }
    fprintf(report, "fexecve %d\n", status(pid));
    if ((pid = fork()) == 0) { syscall(SYS_execve, "/bin/sh", args, empty); _exit(99); }
    fprintf(report, "syscall %d\n", status(pid));
    show("exec", "exec");

    /* programs inside: a script, a copy of a program, neither */
    int s = open(in("script"), O_CREAT | O_WRONLY, 0755);
    dprintf(s, "#!/bin/sh -e\necho \"$0\" $# >%s; exit 5\n", in("ran"));
    close(s);
    if ((pid = fork()) == 0) { execl(in("script"), "script", "x", "y z", (char *)0); _exit(99); }
    fprintf(report, "script %d\n", status(pid));
    show("ran", "ran");
    if ((pid = fork()) == 0) { chdir(base); execl("./script", "script", (char *)0); _exit(99); }
    fprintf(report, "relative script %d\n", status(pid));
    show("ran", "ran");
    snprintf(script, sizeof script, "cp /bin/echo %s; cd %s; ./prog inside >pr; ln -s prog sl; ./sl link >>pr; mkdir -p dd; ./dd >>pr 2>/dev/null; echo $? >>pr; ./f; echo $? >>pr", in("prog"), base);
    fprintf(report, "system %d\n", WEXITSTATUS(system(script)));
    show("pr", "pr");
    int x = open(in("plain"), O_CREAT | O_WRONLY, 0755);
    dprintf(x, "echo no first line >%s\n", in("np"));
    close(x);
    if ((pid = fork()) == 0) { execl(in("plain"), "plain", (char *)0); _exit(errno == ENOEXEC ? 88 : 99); }
    fprintf(report, "no format %d\n", status(pid));
    if ((pid = fork()) == 0) { execlp(in("plain"), "plain", (char *)0); _exit(99); }
    fprintf(report, "shell %d\n", status(pid));
    show("np", "np");

    /* working directory and close-on-exec over exec; failure of exec changes nothing */
    chdir(base);
    mkdir("d", 0755);
    chdir("d");
    system("pwd >../wd; cd ..; pwd >>wd; ls -d d >>wd");
    show("wd", "wd");
    execl("./nothing", "x", (char *)0);
    fprintf(report, "exec failed: %s, flags %d %d, %ld\n", strerror(errno), fcntl(fd, F_GETFD), fcntl(other, F_GETFD), (long)lseek(fd, 0, SEEK_CUR));
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    snprintf(script, sizeof script, "for i in %d %d; do test -e /dev/fd/$i && echo open $i; done >../ce", fd, other);
    system(script);
    show("ce", "ce");
    fcntl(fd, F_SETFD, 0);

    /* children that inherit and no more: directory, position, umask, not what is closed before they begin */
    char outside[] = "/tmp/bypath-spawn.XXXXXX";
    int out = mkstemp(outside);
    umask(027);
    lseek(fd, 3, SEEK_SET);
    posix_spawn_file_actions_init(&a);
    posix_spawn_file_actions_addclose(&a, other);
    posix_spawn_file_actions_addopen(&a, 1, outside, O_WRONLY | O_APPEND, 0);
    posix_spawn_file_actions_adddup2(&a, 1, 2);
    snprintf(script, sizeof script, "pwd; umask; dd bs=1 count=4 <&%d 2>/dev/null; echo; test -e /dev/fd/%d && echo leaked; :>made; stat -c %%a made; exit 6", fd, other);
    spawned("inherits", &a, script);
    fprintf(report, "offset %ld\n", (long)lseek(fd, 0, SEEK_CUR));
    posix_spawn_file_actions_addclosefrom_np(&a, 3);
    snprintf(script, sizeof script, "for i in %d %d; do test -e /dev/fd/$i && echo open $i; done; pwd", fd, other);
    spawned("closes all", &a, script);
    posix_spawn_file_actions_destroy(&a);
    snprintf(script, sizeof script, "cat %s >../inherited", outside);
    system(script);
    show("inherited", "inherited");
    /* its number carries something else by then */
    posix_spawn_file_actions_init(&a);
    posix_spawn_file_actions_adddup2(&a, out, fd);
    snprintf(script, sizeof script, "echo replaced >&%d; pwd >&%d", fd, fd);
    spawned("replaced", &a, script);
    posix_spawn_file_actions_destroy(&a);
    snprintf(script, sizeof script, "tail -n 2 %s >../replaced; cat ../f", outside);
    system(script);
    show("replaced", "replaced");
    show("f", "f");
    unlink(outside);
    char *named[] = {"sh", "-c", "pwd >../named; exit 4", NULL};
    fprintf(report, "by PATH %d", posix_spawnp(&pid, "sh", NULL, NULL, named, environ));
    fprintf(report, " %d\n", status(pid));
    show("named", "named");
    fprintf(report, "missing %d %d %d %d\n", posix_spawn(&pid, "/none", NULL, NULL, none, environ), posix_spawn(&pid, "/tmp", NULL, NULL, none, environ),
            posix_spawnp(&pid, "no-such-program", NULL, NULL, none, environ), posix_spawn(&pid, "./none", NULL, NULL, none, environ));
    pthread_t opener;
    int wrong = 0;
    pthread_create(&opener, NULL, opens, in("g"));
    for (int i = 0; i < 50; i++) {
        char *exits[] = {"sh", "-c", "test -e made && exit 7", NULL};
        wrong += posix_spawn(&pid, "/bin/sh", NULL, NULL, exits, environ) != 0 || status(pid) != 7;
    }
    done = 1;
    pthread_join(opener, NULL);
    fprintf(report, "beside a thread that opens: %d wrong\n", wrong);
    umask(022);

    /* clone without shared memory, fork in a fork, nested offsets */
    static char stack[65536];
    pid = clone(cloned, stack + sizeof stack, SIGCHLD, "from a clone");
    fprintf(report, "clone %d\n", status(pid));
    show("cloned", "cloned");
    lseek(fd, 0, SEEK_SET);
    if ((pid = fork()) == 0) {
        char c[3];
        read(fd, c, 2);
        if ((pid = fork()) == 0) { read(fd, c, 3); _exit(lseek(fd, 0, SEEK_CUR)); }
        _exit(status(pid) * 10 + lseek(fd, 0, SEEK_CUR));
    }
    fprintf(report, "nested %d", status(pid));
    fprintf(report, " %ld\n", (long)lseek(fd, 0, SEEK_CUR));
    fclose(report);
    return 0;
}

// A process that is stopped from a terminal while it works with files keeps nobody waiting: others make, move and remove
// names beside it and write to other files. It goes on afterwards as if nothing had been, and is seen to stop by that signal.
// ways: short both patched host cached
// size: 16M
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 300, PATIENCE = 10 };
static int bad;

static void must(int right, const char *what) {
    if (!right && !bad++) printf("%s: %s\n", what, strerrorname_np(errno));
}

static void work(const char *name) {
    char other[32];
    snprintf(other, sizeof other, "%s.other", name);
    int fd = open(name, O_RDWR | O_CREAT, 0644);
    must(fd >= 0 && pwrite(fd, "0123456789", 10, 4090) == 10 && ftruncate(fd, 100) == 0 && close(fd) == 0, "write");
    must(rename(name, other) == 0 && link(other, name) == 0 && unlink(other) == 0 && unlink(name) == 0, "names");
    must(mkdir(other, 0755) == 0 && rmdir(other) == 0, "directory");
}

// So many names that some lie beside those of the stopped one.
static void many(void) {
    char name[32];
    for (int i = 0; i < 400; i++) {
        snprintf(name, sizeof name, "n%d", i);
        int fd = open(name, O_RDWR | O_CREAT | O_EXCL, 0644);
        must(fd >= 0 && close(fd) == 0 && unlink(name) == 0, name);
    }
}

static void late(int signal) {
    static const char text[] = "others wait for a stopped process\n";
    write(1, text, sizeof text - 1);
    _exit(3);
}

static volatile int handled;
static void handler(int signal) { handled++; }

static void many_of_its_own(void) {
    char name[32];
    for (int i = 0; i < 20; i++) {
        snprintf(name, sizeof name, "own%d", i);
        close(open(name, O_RDWR | O_CREAT, 0644));
    }
    for (int i = 0; i < 20; i++) {
        snprintf(name, sizeof name, "own%d", i);
        unlink(name);
    }
}

int main(void) {
    int go[2];
    pipe(go);
    pid_t child = fork();
    if (!child) {
        setpgid(0, 0); // of this session, so not orphaned
        write(go[1], "g", 1);
        for (;;) work("one"), many_of_its_own();
    }
    char byte;
    read(go[0], &byte, 1);
    signal(SIGALRM, late);
    int stops[3] = {SIGTSTP, SIGTTIN, SIGTTOU}, seen = 0;
    for (int i = 0; i < ROUNDS; i++) {
        int status = 0, sent = stops[i % 3];
        usleep(i * 29 % 400);
        kill(child, sent);
        must(waitpid(child, &status, WUNTRACED) == child, "wait");
        seen += WIFSTOPPED(status) && WSTOPSIG(status) == sent;
        alarm(PATIENCE);
        work("two");
        many();
        alarm(0);
        kill(child, SIGCONT);
    }
    printf("stopped %d of %d, bad %d\n", seen, ROUNDS, bad);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    unlink("one"), unlink("one.other"), rmdir("one.other");
    for (int i = 0; i < 20; i++) {
        char name[32];
        snprintf(name, sizeof name, "own%d", i);
        unlink(name);
    }
    // What a program asks for is what it has set.
    struct sigaction action;
    for (int i = 0; i < 3; i++) {
        sigaction(stops[i], NULL, &action);
        printf("%d", action.sa_handler == SIG_DFL);
        signal(stops[i], handler);
        raise(stops[i]);
        sigaction(stops[i], NULL, &action);
        printf(" %d %d", action.sa_handler == handler, handled);
        printf(" %d", signal(stops[i], SIG_IGN) == handler);
        raise(stops[i]);
        printf(" %d\n", signal(stops[i], SIG_DFL) == SIG_IGN);
    }
    return bad != 0;
}

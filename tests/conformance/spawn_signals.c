// What a program ignores and has blocked is so in the programs that it starts, in whatever way it starts them: SIGSEGV
// and SIGBUS too, which the library keeps deliverable for itself.
// ways: short both patched kernel host cached
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static const int signals[] = {SIGSEGV, SIGBUS, SIGUSR1, SIGTSTP, SIGCHLD};
enum { COUNT = sizeof signals / sizeof *signals };

// What this program has come with: as it sees it, and as the kernel tells others.
static int show(const char *what) {
    sigset_t blocked;
    sigprocmask(SIG_BLOCK, NULL, &blocked);
    printf("%-24s", what);
    for (int i = 0; i < COUNT; i++) {
        struct sigaction action;
        sigaction(signals[i], NULL, &action);
        printf(" %s%s", action.sa_handler == SIG_IGN ? "ignored" : action.sa_handler == SIG_DFL ? "default" : "handler",
            sigismember(&blocked, signals[i]) ? "+blocked" : "");
    }
    puts("");
    return 0;
}

static char self[4096];

static void ended(pid_t pid) {
    int status = 0;
    waitpid(pid, &status, 0);
    if (status)
        printf("status %x\n", status);
}

enum { NOTHING, DEFAULTS = 1, MASK = 2, FILE_INSIDE = 4, ELSEWHERE = 8 };

static void spawn(const char *what, int how) {
    char *argv[] = {"show", (char *)what, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t two;
    pid_t pid;
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    sigemptyset(&two);
    sigaddset(&two, SIGBUS);
    sigaddset(&two, SIGUSR1);
    if (how & DEFAULTS)
        posix_spawnattr_setsigdefault(&attributes, &two);
    if (how & MASK)
        posix_spawnattr_setsigmask(&attributes, &two);
    posix_spawnattr_setflags(&attributes, (how & DEFAULTS ? POSIX_SPAWN_SETSIGDEF : 0) | (how & MASK ? POSIX_SPAWN_SETSIGMASK : 0));
    if (how & FILE_INSIDE)
        posix_spawn_file_actions_addopen(&actions, 9, "made", O_WRONLY | O_CREAT | O_EXCL, 0600);
    char *here = getcwd(NULL, 0);
    if (how & ELSEWHERE)
        chdir("/");
    fflush(stdout);
    int error = posix_spawn(&pid, self, &actions, &attributes, argv, environ);
    if (error)
        printf("%s: %s\n", what, strerror(error));
    else
        ended(pid);
    chdir(here);
    unlink("made");
    free(here);
}

static void all(const char *what) {
    char text[64];
    printf("-- %s\n", what);
    spawn("from elsewhere", ELSEWHERE);
    spawn("elsewhere, defaults", ELSEWHERE | DEFAULTS);
    spawn("elsewhere, mask", ELSEWHERE | MASK);
    spawn("from inside", NOTHING);
    spawn("inside, defaults", DEFAULTS);
    spawn("inside, mask", MASK);
    spawn("with a file", FILE_INSIDE);
    spawn("file, defaults", FILE_INSIDE | DEFAULTS);
    spawn("file, both", FILE_INSIDE | DEFAULTS | MASK);
    for (int how = 0; how < 2; how++) {
        fflush(stdout);
        pid_t pid = how ? vfork() : fork();
        if (pid == 0) {
            execl(self, "show", how ? "vfork" : "fork", NULL);
            _exit(1);
        }
        ended(pid);
    }
    snprintf(text, sizeof text, "exec \"$SELF\" system");
    fflush(stdout);
    setenv("SELF", self, 1);
    system(text);
}

static void handler(int signal) { (void)signal; }

int main(int count, char **args) {
    if (count > 1)
        return show(args[1]);
    setvbuf(stdout, NULL, _IOFBF, 4096);
    self[readlink("/proc/self/exe", self, sizeof self - 1)] = 0;
    sigset_t some;
    sigemptyset(&some);
    for (int i = 0; i < COUNT - 1; i++)
        signal(signals[i], SIG_IGN);
    all("ignored");
    for (int i = 0; i < COUNT; i++) {
        signal(signals[i], i % 2 ? handler : SIG_DFL);
        sigaddset(&some, signals[i]);
    }
    sigprocmask(SIG_BLOCK, &some, NULL);
    all("blocked, some handled");
    signal(SIGSEGV, SIG_IGN);
    all("blocked and ignored");
    return 0;
}

/* Goal: a handler that makes file calls may interrupt file calls at any moment.
 * Method: an interval timer's handler opens, writes and closes a file in DIR while
 * the main loop does the same; every count must come out right. Prints facts. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char handler_file[4096];
static volatile int handled, failures, last_code;

static void on_alarm(int signal, siginfo_t *info, void *context) {
    int saved = errno;
    int fd = open(handler_file, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (fd < 0 || write(fd, "h", 1) != 1 || close(fd) != 0) failures++;
    handled++;
    last_code = info->si_code;
    errno = saved;
}

static void plain(int signal) { handled++; }

int main(int argc, char **argv) {
    FILE *report = argc > 2 ? fopen(argv[2], "w") : stdout;
    char name[4096];
    snprintf(handler_file, sizeof handler_file, "%s/handler", argv[1]);
    snprintf(name, sizeof name, "%s/main", argv[1]);
    struct sigaction action = {0}, old;
    action.sa_sigaction = on_alarm;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    sigaction(SIGALRM, &action, NULL);
    sigaction(SIGALRM, NULL, &old);
    fprintf(report, "query %d %x\n", old.sa_sigaction == on_alarm, old.sa_flags & ~0x04000000);
    struct itimerval timer = {{0, 200}, {0, 200}};
    setitimer(ITIMER_REAL, &timer, NULL);
    int bad = 0;
    struct timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    do {
        int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
        char buffer[64];
        if (fd < 0) { bad++; continue; }
        if (write(fd, "0123456789", 10) != 10) bad++;
        if (pread(fd, buffer, 64, 0) != 10) bad++;
        struct stat st;
        if (fstat(fd, &st) || st.st_size != 10) bad++;
        close(fd);
        if (unlink(name)) bad++;
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while ((now.tv_sec - start.tv_sec) * 1000 + (now.tv_nsec - start.tv_nsec) / 1000000 < 700);
    memset(&timer, 0, sizeof timer);
    setitimer(ITIMER_REAL, &timer, NULL);
    struct stat st;
    stat(handler_file, &st);
    fprintf(report, "bad %d failures %d file %d some %d code %d\n", bad, failures, st.st_size == handled, handled > 20,
            last_code == SI_KERNEL || last_code == SI_TIMER);
    /* signal(), SA_RESETHAND, queries */
    fprintf(report, "old %d\n", signal(SIGUSR1, plain) == SIG_DFL);
    fprintf(report, "old %d\n", signal(SIGUSR1, plain) == plain);
    handled = 0;
    raise(SIGUSR1);
    fprintf(report, "handled %d\n", handled);
    action.sa_handler = plain;
    action.sa_flags = SA_RESETHAND;
    sigaction(SIGUSR1, &action, NULL);
    raise(SIGUSR1);
    sigaction(SIGUSR1, NULL, &old);
    fprintf(report, "reset %d %d\n", handled, old.sa_handler == SIG_DFL);
    /* a blocking lock ends with EINTR */
    int a = open(name, O_RDWR | O_CREAT, 0600);
    int ready[2];
    char byte;
    pipe(ready);
    pid_t child = fork();
    if (child == 0) {
        struct flock lock = {F_WRLCK, SEEK_SET, 0, 0, 0};
        int b = open(name, O_RDWR);
        fcntl(b, F_SETLK, &lock);
        write(ready[1], "x", 1);
        pause();
        _exit(0);
    }
    read(ready[0], &byte, 1);
    action.sa_handler = plain;
    action.sa_flags = 0;
    sigaction(SIGALRM, &action, NULL);
    struct itimerval once = {{0, 0}, {0, 50000}};
    setitimer(ITIMER_REAL, &once, NULL);
    struct flock lock = {F_WRLCK, SEEK_SET, 0, 0, 0};
    int result = fcntl(a, F_SETLKW, &lock);
    if (argc > 3) fprintf(report, "lock %d %d\n", result, result < 0 ? errno == EINTR : 0);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    fprintf(report, "lock %d\n", fcntl(a, F_SETLK, &lock));
    fclose(report);
    return 0;
}

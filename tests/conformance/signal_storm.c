// Each signal that a handler can have, sent over and over while a process works with files, with a handler that works with
// files itself, jumps out, forks, executes a program, or ends the process: every call does all or nothing, and nobody
// meets what another has left half done.
// ways: short both patched host cached
// always: patched
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORKS, JUMPS, FORKS, EXECS, ENDS, KINDS };
static const char *kinds[] = {"works", "jumps", "forks", "execs", "ends"};
static volatile int kind, handled, bad, where;
static volatile pid_t self;
static sigjmp_buf out;
static char **arguments;

// Notes a result that no signal excuses.
static void must(int right, int line) {
    if (right) return;
    if (!bad++) where = line, dprintf(1, "line %d: %s\n", line, strerrorname_np(errno));
}
#define MUST(call) must((call), __LINE__)

static void file_work(const char *name) {
    int fd = open(name, O_RDWR | O_CREAT | O_APPEND, 0644);
    char moved[32];
    MUST(fd >= 0 && write(fd, "0123456789", 10) == 10);
    snprintf(moved, sizeof moved, "%s.moved", name);
    MUST(rename(name, moved) == 0 && unlink(moved) == 0);
    close(fd);
}

static void handler(int signal) {
    int saved = errno;
    handled++;
    if (kind == WORKS) {
        file_work("handler");
    } else if (kind == JUMPS) {
        siglongjmp(out, 1);
    } else if (kind == FORKS) {
        pid_t child = fork();
        if (!child) {
            file_work("child");
            _exit(bad);
        }
        int status = 0;
        MUST(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    } else if (kind == EXECS) {
        execl(arguments[0], arguments[0], "again", NULL);
        MUST(0);
    } else {
        file_work("last");
        _exit(bad ? 1 : 0);
    }
    errno = saved;
}

// What a round that was jumped out of has left.
static void clean(void) { unlink("a"), unlink("b"), unlink("l"), unlink("s"), unlink("d/b"), rmdir("d/e"), rmdir("d"); }

// All that must be there afterwards is what each round makes anew.
static void round_of_work(void) {
    static char data[9000], back[9000];
    struct stat st;
    clean();
    int fd = open("a", O_RDWR | O_CREAT | O_TRUNC, 0644);
    MUST(fd >= 0);
    MUST(pwrite(fd, data, 5000, 0) == 5000);
    MUST(write(fd, data, 9000) == 9000);
    MUST(pwritev(fd, (struct iovec[]){{data, 100}, {data, 200}}, 2, 8900) == 300);
    MUST(pread(fd, back, 9000, 0) == 9000);
    MUST(fstat(fd, &st) == 0 && st.st_size == 9200);
    MUST(ftruncate(fd, 3000) == 0 && fallocate(fd, 0, 0, 40000) == 0);
    MUST(fsync(fd) == 0 && fchmod(fd, 0600) == 0 && futimens(fd, NULL) == 0);
    MUST(fsetxattr(fd, "user.x", "value", 5, 0) == 0);
    MUST(link("a", "l") == 0 && symlink("a", "s") == 0 && stat("s", &st) == 0 && st.st_nlink == 2);
    MUST(mkdir("d", 0755) == 0 && mkdir("d/e", 0755) == 0);
    MUST(rename("a", "b") == 0 && rename("b", "d/b") == 0 && rename("d/b", "a") == 0);
    int dir = open(".", O_RDONLY | O_DIRECTORY);
    MUST(dir >= 0 && syscall(SYS_getdents64, dir, back, sizeof back) > 0);
    MUST(access("a", R_OK) == 0 && access("none", F_OK) == -1);
    MUST(rmdir("d/e") == 0 && rmdir("d") == 0 && unlink("l") == 0 && unlink("s") == 0 && unlink("a") == 0);
    close(fd), close(dir);
}

static void worker(int signal, int ready) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigaction(signal, &action, NULL);
    for (int fd = 3; fd < 40; fd++)
        if (fd != ready) close(fd);
    for (volatile int round = 0; round < 4000 && handled < 10; round++) {
        // What was open stays so after a jump.
        if (sigsetjmp(out, 1))
            for (int fd = 3; fd < 40; fd++) close(fd);
        else if (round == 0)
            write(ready, "r", 1);
        round_of_work();
    }
    sigaction(signal, &(struct sigaction){.sa_handler = SIG_IGN}, NULL);
    clean();
    _exit(bad ? 1 : 0);
}

int fsetxattr(int, const char *, const void *, size_t, int);

int main(int argc, char **argv) {
    char program[4096] = "";
    readlink("/proc/self/exe", program, sizeof program - 1);
    arguments = (char *[]){program};
    if (argc > 1) { // after an exec
        sigset_t none;
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        round_of_work();
        file_work("again");
        return bad ? 1 : 0;
    }
    int failed = 0;
    for (int signal = 1; signal < 32; signal++)
        for (kind = 0; kind < KINDS; kind++) {
            // A child's end is a signal itself.
            if (signal == SIGKILL || signal == SIGSTOP || signal == SIGCHLD && kind == FORKS) continue;
            for (int again = 0; again < (kind >= EXECS ? 2 : 1); again++) {
                int ready[2], status = -1;
                pipe(ready);
                pid_t child = fork();
                if (!child) worker(signal, ready[1]);
                close(ready[1]);
                char byte;
                read(ready[0], &byte, 1);
                close(ready[0]);
                for (int i = 0; i < 20000; i++) {
                    // Sent in each of the three ways; an ended one is a zombie, which may be sent what one likes.
                    if (i % 3 == 0) kill(child, signal);
                    if (i % 3 == 1) sigqueue(child, signal, (union sigval){i});
                    if (i % 3 == 2) syscall(SYS_tgkill, child, child, signal);
                    if (kind >= EXECS) {
                        waitpid(child, &status, 0);
                        break;
                    }
                    if (waitpid(child, &status, WNOHANG) == child) break;
                    // Ever slower: else a handler that takes longer is all that the child ever comes to.
                    usleep(60 + i * 37 % 200 + i);
                }
                // On a busy machine it may have more to do when the last was sent; hung is who does nothing for a minute.
                for (int i = 0; status == -1 && i < 60000 && waitpid(child, &status, WNOHANG) == 0; i++) usleep(1000);
                if (status == -1) kill(child, SIGKILL), waitpid(child, NULL, 0);
                if (status != 0) failed++, printf("signal %d, %s: status %x\n", signal, kinds[kind], status);
            }
        }
    printf("failed %d\n", failed);
    clean();
    unlink("handler"), unlink("child"), unlink("last"), unlink("again");
    return failed != 0;
}

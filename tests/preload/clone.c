/* Children made by the system calls themselves: they share descriptions and offsets, and have their own descriptors and directory. */
#include "t.h"
#include <linux/sched.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/syscall.h>

static long by_clone(void) { return syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0); }
static long by_clone3(void) {
    struct clone_args args = {.exit_signal = SIGCHLD};
    return syscall(SYS_clone3, &args, sizeof args);
}
#ifdef SYS_fork
static long by_fork(void) { return syscall(SYS_fork); }
#else
#define by_fork by_clone
#endif

static void child_of(const char *name, long (*make)(void)) {
    int file = open(name, O_RDWR | O_CREAT, 0644), status;
    int held = dup(file);
    write(file, "parent ", 7);
    mkdir("d", 0755);
    long pid = make();
    if (pid == 0) {
        write(file, "child ", 6);
        int other = open("other", O_RDWR | O_CREAT | O_TRUNC, 0600);
        int moved = chdir("d");
        close(held);
        close(file);
        _exit(other < 0 || moved < 0 || access("../other", F_OK) < 0 || write(file, "x", 1) != -1);
    }
    waitpid(pid, &status, 0);
    say("%s: %d", name, status);
    /* What the child has closed is still open here, and nobody else's. */
    R(unlink(name));
    int extra = open("extra", O_RDWR | O_CREAT | O_TRUNC, 0644);
    R(write(extra, "extra", 5));
    show("extra");
    close(extra);
    R(write(file, "parent", 6));
    R(lseek(file, 0, SEEK_CUR));
    char text[40] = "";
    struct stat st;
    R(pread(held, text, sizeof text, 0));
    say("%s", text);
    R(fstat(held, &st));
    say("%d links, %ld bytes", (int)st.st_nlink, (long)st.st_size);
    R(access("other", F_OK));
    R(flock(held, LOCK_EX | LOCK_NB));
    R(write(held, "!", 1));
    close(held);
    close(file);
    int next = open("extra", O_RDONLY);
    say("same number: %d", next == file);
    close(next);
}

int main(int argc, char **argv) {
    begin(argc, argv);
    child_of("clone", by_clone);
    child_of("clone3", by_clone3);
    child_of("fork", by_fork);
    return 0;
}

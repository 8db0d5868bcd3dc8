// The stack comes to its end within a call, wherever that is: the handler, on a stack of its own, works with files and jumps
// out. What the call was about has happened or has not, and nobody meets it half done.
// ways: short both patched host cached
// always: patched
// flags: -O0
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

enum { PAGE = 4096, ROOM = 64 << 10, OPERATIONS = 11, MOST = 12 << 10, STEP = 96 };
static ucontext_t home, there;
static sigjmp_buf out;
static char *stack;
static volatile int operation, faults, bad;
static char data[20000];

static void must(int right, const char *what, int size) {
    if (!right && !bad++) printf("%s, operation %d, %d bytes: %s\n", what, operation, size, strerrorname_np(errno));
}

static void handler(int signal) {
    faults++;
    int fd = open("report", O_RDWR | O_CREAT | O_APPEND, 0644);
    must(fd >= 0 && write(fd, "a report\n", 9) == 9 && close(fd) == 0, "report", 0);
    must(rename("report", "reported") == 0 && unlink("reported") == 0, "report moved", 0);
    siglongjmp(out, 1);
}

static void call(void) {
    int fd;
    switch (operation) {
    case 0: close(open("new", O_RDWR | O_CREAT, 0644)); break;
    case 1: unlink("old"); break;
    case 2: rename("old", "new"); break;
    case 3: rename("old", "kept"); break;
    case 4: mkdir("new", 0755); break;
    case 5: link("old", "new"); break;
    case 6: symlink("some text", "new"); break;
    case 7: truncate("old", 100); break;
    case 8: chmod("old", 0600); break;
    case 9: pwrite(3, data, sizeof data, 1000); break;
    case 10: rmdir("dir"); break;
    }
}

// Whether everything is as before or as after, and can be used.
static void look(int size) {
    struct stat st;
    int fd = open("old", O_RDWR | O_CREAT, 0644);
    must(fd >= 0 && fstat(fd, &st) == 0 && pwrite(fd, "x", 1, 0) == 1 && fsync(fd) == 0, "old", size);
    must(st.st_size == 0 || st.st_size == 5000 || operation == 7 && st.st_size == 100 || operation == 9 && st.st_size == 21000,
         "its size", size);
    close(fd);
    must(lstat("new", &st) == 0 || errno == ENOENT, "new", size);
    must((unlink("new") == 0 || errno == ENOENT || errno == EISDIR) && (rmdir("new") == 0 || errno == ENOENT), "new removed", size);
    must(unlink("old") == 0, "old removed", size);
    must(unlink("kept") == 0 || errno == ENOENT, "kept removed", size);
    must(rmdir("dir") == 0 || errno == ENOENT, "dir removed", size);
}

int main(void) {
    // Every call once on a long stack: what libc does then is not meant here.
    stack_t other = {.ss_sp = malloc(ROOM), .ss_size = ROOM};
    sigaltstack(&other, NULL);
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
    sigaction(SIGSEGV, &action, NULL);
    stack = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(stack, PAGE, PROT_NONE);
    for (int size = MOST; size > 200; size -= STEP)
        for (operation = 0; operation < OPERATIONS; operation++) {
            int fd = open("old", O_RDWR | O_CREAT | O_TRUNC, 0644), kept = open("kept", O_RDWR | O_CREAT, 0644);
            must(fd >= 0 && write(fd, data, 5000) == 5000 && mkdir("dir", 0755) == 0, "begin", size);
            dup2(fd, 3), close(kept);
            if (fd != 3) close(fd);
            if (!sigsetjmp(out, 1)) {
                getcontext(&there);
                there.uc_stack.ss_sp = stack + PAGE;
                there.uc_stack.ss_size = size;
                there.uc_link = &home;
                makecontext(&there, call, 0);
                swapcontext(&home, &there);
            }
            close(3);
            look(size);
        }
    // Others too find all in order.
    if (!fork()) {
        operation = -1;
        look(0);
        _exit(bad != 0);
    }
    int status;
    wait(&status);
    printf("bad %d, another: %x\n", bad, status);
    if (getenv("FAULTS")) printf("faults %d\n", faults);
    return bad != 0;
}

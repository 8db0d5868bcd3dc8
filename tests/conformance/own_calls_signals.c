// ways: short both patched
// always: patched
// flags: -pthread
// A program's own system calls about signals, threads and children, among calls on files: masks, handlers that call, alternate
// stacks, waits with a mask, SIGSYS sent and handled, threads by every function, fork, vfork, clone on every kind of stack.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <threads.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>
static inline __attribute__((always_inline)) long raw(long n, long a, long b, long c, long d, long e, long f) {
    long r;
    register long r10 asm("r10") = d, r8 asm("r8") = e, r9 asm("r9") = f;
    asm volatile("syscall" : "=a"(r) : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
    return r;
}
#define R(n, ...) raw6(n, ##__VA_ARGS__, 0, 0, 0, 0, 0, 0)
#define raw6(n, a, b, c, d, e, f, ...) raw(n, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))
static long create(const char *name, const char *text) {
    long fd = R(SYS_openat, AT_FDCWD, name, O_CREAT | O_RDWR | O_APPEND, 0644);
    if (fd < 0) return fd;
    long n = R(SYS_write, fd, text, strlen(text));
    R(SYS_close, fd);
    return n;
}
// What a child ended with, at once.
static int ended(long pid) {
    int status = -1;
    return waitpid(pid, &status, 0) == pid ? WEXITSTATUS(status) : -1;
}
static long length(const char *name) {
    struct stat st;
    return stat(name, &st) ? -1 : st.st_size;
}
struct action { void *handler; unsigned long flags; void (*restorer)(void); unsigned long mask; };
__attribute__((naked)) static void restore(void) { asm("mov $15, %eax; syscall"); }
static unsigned long mask_now(void) {
    unsigned long m = 0;
    R(SYS_rt_sigprocmask, SIG_BLOCK, 0, &m, 8);
    return m;
}
static volatile int came, code, in_stack;
static stack_t other;
static sigjmp_buf back;
static void by_handler(int n, siginfo_t *info, void *context) {
    came = n, code = info->si_code;
    char here;
    in_stack = &here >= (char *)other.ss_sp && &here < (char *)other.ss_sp + other.ss_size;
    create("handler", "h");
}
static void leaves(int n) {
    create("handler", "l");
    siglongjmp(back, n);
}
static void *thread(void *name) {
    unsigned long all = ~0ul;
    R(SYS_rt_sigprocmask, SIG_SETMASK, &all, 0, 8);
    for (int i = 0; i < 50; i++) create(name, "t");
    return 0;
}
static int c11(void *name) { return thread(name), 3; }
static int child(void *name) { return create(name, "c"); }

static void masks(void) {
    unsigned long m = 1ul << (SIGSYS - 1) | 1ul << (SIGUSR1 - 1), old = 5;
    long r = R(SYS_rt_sigprocmask, SIG_BLOCK, &m, &old, 8);
    printf("block %ld %lx, now %lx\n", r, old, mask_now());
    sigset_t set;
    sigprocmask(SIG_BLOCK, 0, &set);
    printf("by libc %d %d %d\n", sigismember(&set, SIGSYS), sigismember(&set, SIGUSR1), sigismember(&set, SIGUSR2));
    printf("calls %ld\n", create("masked", "12"));
    pid_t pid = fork();
    if (!pid) _exit(mask_now() == m ? create("masked", "34") : 9);
    printf("child %d\n", ended(pid));
    fflush(stdout);
    system("grep SigBlk /proc/self/status >mask");
    printf("how %ld size %ld\n", R(SYS_rt_sigprocmask, 7, &m, 0, 8), R(SYS_rt_sigprocmask, SIG_BLOCK, &m, 0, 4));
    printf("unblock %ld, now %lx\n", R(SYS_rt_sigprocmask, SIG_UNBLOCK, &m, 0, 8), mask_now());
}

static void handlers(void) {
    struct action a = {by_handler, SA_SIGINFO | 0x04000000 | SA_ONSTACK, restore, ~0ul}, old;
    other = (stack_t){.ss_sp = malloc(65536), .ss_size = 65536};
    printf("stack %ld\n", R(SYS_sigaltstack, &other, 0));
    stack_t seen;
    sigaltstack(0, &seen);
    printf("seen %d %d\n", seen.ss_sp == other.ss_sp, seen.ss_flags);
    printf("action %ld\n", R(SYS_rt_sigaction, SIGUSR1, &a, 0, 8));
    printf("again %ld\n", R(SYS_rt_sigaction, SIGUSR1, 0, &old, 8));
    printf("it is %d\n", old.handler == (void *)by_handler && old.flags & SA_SIGINFO);
    R(SYS_tgkill, getpid(), gettid(), SIGUSR1);
    printf("came %d code %d on it %d\n", came, code, in_stack);
    struct sigaction by_libc;
    sigaction(SIGUSR1, 0, &by_libc);
    printf("by libc %d\n", by_libc.sa_sigaction == by_handler);
    // SIGSYS, as others send it.
    printf("SIGSYS %ld\n", R(SYS_rt_sigaction, SIGSYS, &a, &old, 8));
    printf("before %d\n", old.handler == 0);
    R(SYS_kill, getpid(), SIGSYS);
    printf("came %d code %d\n", came, code);
    sigaction(SIGSYS, 0, &by_libc);
    printf("by libc %d\n", by_libc.sa_sigaction == by_handler);
    for (volatile int i = 0; i < 100; i++) {
        signal(SIGUSR2, leaves);
        if (!sigsetjmp(back, 1)) R(SYS_tkill, gettid(), SIGUSR2);
    }
    printf("handler %ld mask %lx\n", length("handler"), mask_now());
    // While it waits with a mask.
    unsigned long all = ~0ul & ~(1ul << (SIGUSR1 - 1)), usr = 1ul << (SIGUSR1 - 1);
    sigset_t all_set;
    sigfillset(&all_set), sigdelset(&all_set, SIGUSR1);
    R(SYS_rt_sigprocmask, SIG_BLOCK, &usr, 0, 8);
    long size[2] = {(long)&all, 8};
    struct timespec second = {5, 0};
    struct epoll_event event;
    int poll_fd = epoll_create1(0);
    for (int way = 0; way < 7; way++) {
        R(SYS_tgkill, getpid(), gettid(), SIGUSR1);
        long r = way == 0 ? R(SYS_rt_sigsuspend, &all, 8)
            : way == 1 ? R(SYS_ppoll, 0, 0, &second, &all, 8)
            : way == 2 ? R(SYS_pselect6, 0, 0, 0, 0, &second, size)
            : way == 3 ? R(SYS_epoll_pwait, poll_fd, &event, 1, 5000, &all, 8)
            : way == 4 ? (sigsuspend(&all_set), -errno)
            : way == 5 ? (ppoll(0, 0, &second, &all_set), -errno)
            : (epoll_pwait(poll_fd, &event, 1, 5000, &all_set), -errno);
        printf("wait %d %ld\n", way, r);
    }
    close(poll_fd);
    R(SYS_rt_sigprocmask, SIG_UNBLOCK, &usr, 0, 8);
    printf("handler %ld\n", length("handler"));
}

static void threads(void) {
    pthread_t all[4];
    for (int i = 0; i < 4; i++) pthread_create(&all[i], 0, thread, "threads");
    for (int i = 0; i < 4; i++) pthread_join(all[i], 0);
    thrd_t one;
    int r = 0;
    thrd_create(&one, c11, "threads");
    thrd_join(one, &r);
    printf("threads %ld, c11 %d\n", length("threads"), r);
}

static void children(void) {
    long pid = R(SYS_fork);
    if (!pid) R(SYS_exit, create("children", "f"));
    printf("fork %d\n", ended(pid));
    pid = R(SYS_clone, SIGCHLD);
    if (!pid) R(SYS_exit_group, create("children", "f"));
    printf("clone %d\n", ended(pid));
    pid = fork();
    if (!pid) R(SYS_exit_group, create("children", "f"));
    printf("fork %d\n", ended(pid));
    struct clone_args args = {.exit_signal = SIGCHLD};
    pid = R(SYS_clone3, &args, sizeof args);
    if (!pid) R(SYS_exit_group, create("children", "3"));
    printf("clone3 %d\n", ended(pid));
    pid = vfork();
    if (!pid) _exit(create("children", "v"));
    printf("vfork %d\n", ended(pid));
    volatile long kept = 77;
    char *list[] = {"sh", "-c", "echo from sh >>children", 0}, *none[] = {0};
    pid = R(SYS_vfork);
    if (!pid) {
        R(SYS_execve, "/nothing", list, none);
        R(SYS_execve, "/bin/sh", list, none);
        R(SYS_exit, 5);
    }
    printf("vfork %d kept %ld\n", ended(pid), kept);
    pid = R(SYS_clone, CLONE_VM | CLONE_VFORK | SIGCHLD);
    if (!pid) R(SYS_exit, create("children", "w"));
    printf("vfork by clone %d\n", ended(pid));
    // The descriptor is the child's, whichever it is in the end.
    int of_child = -1;
    siginfo_t told = {0};
    int in = R(SYS_openat, AT_FDCWD, "children", O_RDONLY);
    pid = R(SYS_clone, CLONE_VM | CLONE_VFORK | CLONE_PIDFD | SIGCHLD, 0, &of_child);
    if (!pid) {
        R(SYS_dup3, in, 9, 0);
        R(SYS_exit, create("children", "p"));
    }
    printf("waitid %d", (int)R(SYS_waitid, 3, of_child, &told, WEXITED));
    printf(" %d %d\n", told.si_pid == pid, told.si_status);
    close(of_child), close(in);
    pid_t spawned;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, "spawned", O_CREAT | O_WRONLY, 0644);
    printf("spawn %d\n", posix_spawn(&spawned, "/bin/cat", &actions, 0, (char *[]){"cat", "children", 0}, none));
    printf("spawned %d\n", ended(spawned));
    // Children that share memory, on stacks of their own: the kernel's calls work.
    char *stack = malloc(65536);
    int fd = R(SYS_openat, AT_FDCWD, "/dev/null", O_WRONLY);
    pid = clone(child, stack + 65536, CLONE_VM | CLONE_VFORK | SIGCHLD, "/dev/null");
    printf("clone with a stack %d\n", ended(pid));
    volatile int said = 0;
    args = (struct clone_args){.flags = CLONE_VM | CLONE_VFORK, .exit_signal = SIGCHLD, .stack = (long)stack, .stack_size = 65536};
    for (int way = 0; way < 2; way++) {
        register long a asm("rdi") = way ? (long)&args : CLONE_VM | CLONE_VFORK | SIGCHLD;
        register long b asm("rsi") = way ? sizeof args : (long)stack + 65536;
        register long d asm("rdx") = 0;
        register volatile int *told asm("r12") = &said;
        long before_a = a, before_b = b;
        asm volatile("syscall; test %%rax, %%rax; jnz 1f; movl $4, (%%r12); push $6; pop %%rdi; mov $60, %%eax; syscall; 1:"
            : "=a"(pid), "+r"(a), "+r"(b) : "0"(way ? SYS_clone3 : SYS_clone), "r"(d), "r"(told) : "rcx", "r11", "r10", "r8", "memory");
        printf("raw %d said %d, registers %d\n", way, said, a == before_a && b == before_b);
        printf("ended %d\n", ended(pid));
        said = 0;
    }
    printf("clone3 %ld %ld\n", R(SYS_clone3, &args, 8), R(SYS_clone3, 16, sizeof args));
    close(fd);
    printf("children %ld spawned %ld\n", length("children"), length("spawned"));
}

// What the kernel keeps: flags, the registers of the arguments, vector registers, the red zone.
static void registers(void) {
    int fd = open("registers", O_CREAT | O_RDWR, 0644);
    char text[64] = "0123456789abcdef", got[64] = {0};
    long r, carry = 0, red = 0, a = fd, b = (long)text, c = 16;
    asm volatile("movdqu (%[t]), %%xmm9; movq $0x1234, -8(%%rsp); stc; syscall; setc %b[carry]; movq -8(%%rsp), %[red]; movdqu %%xmm9, (%[g])"
        : "=a"(r), [carry] "+r"(carry), [red] "+r"(red), "+D"(a), "+S"(b), "+d"(c)
        : "0"(SYS_write), [t] "r"(text), [g] "r"(got) : "rcx", "r11", "xmm9", "memory");
    printf("write %ld carry %ld red %lx same %d vector %s\n", r, carry, red, a == fd && b == (long)text && c == 16, got);
    asm volatile("int $0x80" : "=a"(r) : "a"(20) : "r8", "r9", "r10", "r11", "memory");
    printf("the older instruction %d\n", r == getpid());
    close(fd);
}
int main(void) {
    setvbuf(stdout, 0, _IOFBF, 65536);
    masks();
    handlers();
    threads();
    registers();
    fflush(stdout);
    children();
    fflush(stdout);
    return 0;
}

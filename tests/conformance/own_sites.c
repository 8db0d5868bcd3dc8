// ways: short both patched kernel
// always: patched
// flags: -O1 -pthread -mavx -mno-red-zone
// seconds: 120
// A system call of the program's own, made often from one place, is the same call the first time and the thousandth: registers,
// flags, what lies below the stack, wide registers; from many threads at once while its place is changed; within handlers; by whoever
// jumps behind it; and a fault behind it is told where it is.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <immintrin.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define ROUNDS 3000
// Nobody counts on the order of arguments here: each place is a function of its own.
#define PLACE(name, behind) \
    asm(".text\n.globl " #name "\n.balign 16\n" #name ": mov %rdi,%rax; mov %rsi,%rdi; mov %rdx,%rsi; mov %rcx,%rdx; mov %r8,%r10\n" \
        #name "_call: syscall\n" #name "_behind:" behind "; ret; .balign 16\n"); \
    long name(long, long, long, long, long); \
    extern char name##_behind[];
PLACE(by_test, "test %rax,%rax")
PLACE(by_compare, "cmp $-4095,%rax")
PLACE(by_return, "")
PLACE(by_short, "mov %eax,%ecx; nop")
PLACE(by_store, "mov %eax,(%r9); mov %rax,%rax")
typedef long (*Place)(long, long, long, long, long);
static const Place places[] = {by_test, by_compare, by_return, by_short};
static const char *const names[] = {"test", "compare", "return", "short"};

static void say(const char *what, long value) { printf("%s %ld\n", what, value), fflush(stdout); }

// All that the kernel leaves alone, with known contents: returns what has changed.
static long kept(long fd, void *st) {
    long bad = 0, red, flags, result, regs[8];
    __m256d wide = _mm256_set_pd(1.5, 2.5, 3.5, 4.5), after;
    asm volatile(
        "vmovapd %[wide], %%ymm15\n vmovapd %[wide], %%ymm3\n"
        "mov $0x11, %%rbx\n mov $0x22, %%r12\n mov $0x33, %%r13\n mov $0x44, %%r14\n mov $0x55, %%r15\n mov $0x66, %%r8\n mov $0x77, %%r9\n mov $0x88, %%r10\n"
        "movq $0x1234, -120(%%rsp)\n"
        "mov $5, %%eax\n mov $0x7f, %%cl\n add $1, %%cl\n stc\n"
        "syscall\n mov %%rax, %[result]\n"
        "pushfq\n popq %[flags]\n"
        : [result] "=m"(result), [flags] "=m"(flags)
        : "D"(fd), "S"(st), [wide] "m"(wide)
        : "rax", "rbx", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "memory", "xmm3", "xmm15");
    asm volatile(
        "mov $0x11, %%rbx\n mov $0x22, %%r12\n mov $0x66, %%r8\n mov $0x77, %%r9\n mov $0x88, %%r10\n vmovapd %[wide], %%ymm15\n vmovapd %[wide], %%ymm3\n"
        "movq $0x1234, -120(%%rsp)\n mov $5, %%eax\n"
        "syscall\n mov %%rax, %%rax\n"
        "mov -120(%%rsp), %%rax\n mov %%rax, %[red]\n"
        "vmovapd %%ymm15, %[after]\n"
        "mov %%rbx, %[a]\n mov %%r12, %[b]\n mov %%r8, %[c]\n mov %%r9, %[d]\n mov %%r10, %[e]\n mov %%rdi, %[f]\n mov %%rsi, %[g]\n"
        "vmovapd %%ymm3, %%ymm15\n"
        : [red] "=m"(red), [after] "=m"(after), [a] "=m"(regs[0]), [b] "=m"(regs[1]), [c] "=m"(regs[2]), [d] "=m"(regs[3]),
          [e] "=m"(regs[4]), [f] "=m"(regs[5]), [g] "=m"(regs[6])
        : "D"(fd), "S"(st), [wide] "m"(wide)
        : "rax", "rbx", "rcx", "r8", "r9", "r10", "r11", "r12", "memory", "xmm3", "xmm15");
    bad |= result != 0;
    bad |= (flags & 0x801) != 0x801 ? 2 : 0; // carry and overflow
    bad |= red != 0x1234 ? 4 : 0;
    bad |= memcmp(&after, &wide, sizeof wide) ? 8 : 0;
    bad |= regs[0] != 0x11 || regs[1] != 0x22 || regs[2] != 0x66 || regs[3] != 0x77 || regs[4] != 0x88 || regs[5] != fd ||
                   regs[6] != (long)st
               ? 16
               : 0;
    return bad;
}

static pthread_barrier_t together;
static void *threads(void *number) {
    char name[40];
    long bad = 0;
    snprintf(name, sizeof name, "t%ld", (long)number);
    pthread_barrier_wait(&together);
    for (int i = 0; i < ROUNDS; i++) {
        Place place = places[i % 4];
        long fd = place(SYS_openat, AT_FDCWD, (long)name, O_CREAT | O_RDWR, 0600);
        struct stat st;
        bad += fd < 0 || place(SYS_write, fd, (long)name, 2, 0) != 2 || place(SYS_fstat, fd, (long)&st, 0, 0) || st.st_size < 2;
        bad += place(SYS_close, fd, 0, 0, 0) != 0;
    }
    return (void *)bad;
}

static volatile int came;
static volatile long handled_bad;
static void handler(int n) {
    int saved = errno;
    long fd = by_test(SYS_openat, AT_FDCWD, (long)"handled", O_CREAT | O_RDWR | O_APPEND, 0600);
    handled_bad += by_test(SYS_write, fd, (long)"h", 1, 0) != 1 || by_test(SYS_close, fd, 0, 0, 0) != 0;
    came++, errno = saved;
}

static volatile long fault_at;
static void fault(int n, siginfo_t *info, void *context) {
    ucontext_t *frame = context;
    fault_at = frame->uc_mcontext.gregs[REG_RIP];
    static int word;
    frame->uc_mcontext.gregs[REG_R9] = (long)&word;
}
static long store(long *where) {
    long result;
    register long r9 asm("r9") = (long)where;
    asm volatile("sub $128,%%rsp\n call by_store\n add $128,%%rsp" : "=a"(result), "+r"(r9) : "D"(SYS_umask), "S"(022L), "d"(0L), "c"(0L) : "r8", "r10", "r11", "memory");
    return result;
}

int main(void) {
    struct stat st;
    int fd = open("f", O_CREAT | O_RDWR, 0644);
    // By this the program is known for one that has calls of its own.
    long made;
    asm volatile("mov %1, %%eax\n syscall" : "=&a"(made) : "i"(SYS_mkdirat), "D"(AT_FDCWD), "S"("d"), "d"(0755L) : "rcx", "r11", "memory");
    say("mkdirat", made);
    say("write", write(fd, "0123456789", 10));
    // What comes often, and who jumps behind it.
    for (int p = 0; p < 4; p++) {
        long bad = 0;
        char text[20] = "";
        for (int i = 0; i < 100; i++) {
            st.st_size = 0;
            bad += places[p](SYS_fstat, fd, (long)&st, 0, 0) != 0 || st.st_size != 10;
            bad += places[p](SYS_pread64, fd, (long)text, 4, 2) != 4 || strcmp(text, "2345");
            bad += places[p](SYS_openat, AT_FDCWD, (long)"none", 0, 0) != -ENOENT;
            bad += places[p](SYS_pread64, fd, 8, 4, 2) != -EFAULT;
        }
        say(names[p], bad);
    }
    long behind;
    asm volatile("sub $128,%%rsp\n mov $42,%%rax\n call by_compare_behind\n add $128,%%rsp" : "=a"(behind)::"rcx", "memory");
    say("behind", behind);
    asm volatile("sub $128,%%rsp\n mov $43,%%rax\n call by_return_behind\n add $128,%%rsp" : "=a"(behind)::"rcx", "memory");
    say("behind a return", behind);
    long bad = 0;
    for (int i = 0; i < 200; i++) bad |= kept(fd, &st);
    say("kept", bad);
    // A fault behind it.
    struct sigaction act = {.sa_sigaction = fault, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &act, 0);
    bad = 0;
    for (int i = 0; i < 10; i++) {
        fault_at = 0;
        store((long *)16);
        bad += fault_at != (long)by_store_behind;
    }
    say("faults", bad);
    signal(SIGSEGV, SIG_DFL);
    // Handlers that make calls from the same place, at any moment.
    signal(SIGALRM, handler);
    struct itimerval often = {{0, 700}, {0, 700}}, never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &often, 0);
    bad = 0;
    while (came < 60) bad += by_test(SYS_fstat, fd, (long)&st, 0, 0) != 0 || st.st_size != 10;
    setitimer(ITIMER_REAL, &never, 0);
    say("handlers", bad + handled_bad);
    unlink("handled");
    // Threads that begin while nothing is changed yet, at places of their own; and children.
    pthread_barrier_init(&together, 0, 4);
    pthread_t all[4];
    for (long n = 0; n < 4; n++) pthread_create(&all[n], 0, threads, (void *)n);
    bad = 0;
    for (int n = 0; n < 4; n++) {
        void *result;
        pthread_join(all[n], &result), bad += (long)result;
    }
    say("threads", bad);
    for (int i = 0; i < 20; i++) {
        int status, child = by_test(SYS_fork, 0, 0, 0, 0);
        if (!child) by_test(SYS_exit_group, by_compare(SYS_fstat, fd, (long)&st, 0, 0) != 0 || st.st_size != 10, 0, 0, 0);
        waitpid(child, &status, 0), bad += status;
        if (!(child = vfork())) execl("/bin/true", "true", (char *)0), _exit(9);
        waitpid(child, &status, 0), bad += status;
    }
    say("children", bad);
    return 0;
}

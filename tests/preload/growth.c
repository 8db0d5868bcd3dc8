/* Mappings that reach past the end of their file, which grows and shrinks under them: by this process, by its child, by several threads at once. */
#include "t.h"
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>

#define PAGE 4096
static sigjmp_buf back;
static volatile int came, code;
static void *volatile where;

static void handler(int signal, siginfo_t *info, void *context) {
    came = signal;
    code = info->si_code;
    where = info->si_addr;
    siglongjmp(back, 1);
}

/* What reading a byte gives: its value, or the signal. */
static int peek(const volatile char *at) {
    came = 0;
    if (sigsetjmp(back, 1) == 0)
        return (unsigned char)*at;
    return where == at ? -came * 10 - code : -1;
}

static int poke(volatile char *at, char value) {
    came = 0;
    if (sigsetjmp(back, 1) == 0)
        return *at = value;
    return where == at ? -came * 10 - code : -1;
}

static int ends(void (*what)(char *), char *at) {
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        signal(SIGSEGV, SIG_DFL);
        signal(SIGBUS, SIG_DFL);
        what(at);
        _exit(0);
    }
    waitpid(pid, &status, 0);
    return status & 0x7f;
}

static void touch(char *at) { *(volatile char *)at; }
static void change(char *at) { *(volatile char *)at = 1; }

static char *shared;
static void *look(void *from) {
    long sum = 0;
    for (long page = 0; page < 64; page++)
        sum += shared[(64 + page) * PAGE];
    return (void *)sum;
}

int main(int argc, char **argv) {
    begin(argc, argv);
    char block[PAGE];
    int file = open("f", O_RDWR | O_CREAT, 0644);
    shared = mmap(NULL, 256 * PAGE, PROT_READ, MAP_SHARED, file, 0);
    char *writable = mmap(NULL, 256 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    char *own = mmap(NULL, 16 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, PAGE);
    char *none = mmap(NULL, 16 * PAGE, PROT_NONE, MAP_SHARED, file, 0);
    P(shared);
    P(writable);
    P(own);
    P(none);
    R(ends(touch, shared));
    R(ends(touch, none));
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO}, old;
    R(sigaction(SIGSEGV, &action, &old));
    say("before: %d", old.sa_handler == SIG_DFL);
    sigaction(SIGBUS, &action, NULL);
    R(peek(shared));
    memset(block, 'a', PAGE);
    R(write(file, block, 100));
    R(peek(shared + 99));
    R(peek(shared + 100));
    R(peek(shared + PAGE));
    R(ftruncate(file, 8 * PAGE));
    R(peek(shared + PAGE));
    R(peek(shared + 8 * PAGE - 1));
    R(peek(shared + 8 * PAGE));
    R(poke(writable + 5 * PAGE, 'w'));
    R(peek(shared + 5 * PAGE));
    R(poke(shared + 5 * PAGE, 'x'));
    R(poke(writable + 8 * PAGE, 'y'));
    R(pread(file, block, 1, 5 * PAGE));
    R(*block);
    R(poke(own, 'o'));
    R(peek(shared + PAGE));
    R(peek(own));
    R(peek(own + 6 * PAGE));
    R(peek(own + 7 * PAGE));
    R(peek(none));
    R(poke(none + 9 * PAGE, 1));
    say("by a descriptor that can't write");
    int reader = open("f", O_RDONLY);
    char *reading = mmap(NULL, 256 * PAGE, PROT_READ, MAP_SHARED, reader, 0);
    P(reading);
    R(peek(reading + 5 * PAGE));
    R(poke(writable + 5 * PAGE, 'v'));
    R(peek(reading + 5 * PAGE));
    R(peek(reading + 6 * PAGE));
    R(poke(writable + 6 * PAGE, 'u'));
    R(peek(reading + 6 * PAGE));
    R(mprotect(reading + 5 * PAGE, PAGE, PROT_READ | PROT_WRITE));
    R(poke(reading + 5 * PAGE, 't'));
    R(ftruncate(file, 9 * PAGE));
    R(peek(reading + 8 * PAGE));
    R(poke(writable + 8 * PAGE, 's'));
    R(peek(reading + 8 * PAGE));
    R(mprotect(reading + 8 * PAGE, PAGE, PROT_READ | PROT_WRITE));
    say("by a child");
    if (fork() == 0) {
        pwrite(file, "child", 5, 20 * PAGE);
        _exit(poke(writable + 19 * PAGE, 'c') != 'c');
    }
    int status;
    wait(&status);
    R(status);
    R(peek(shared + 19 * PAGE));
    R(peek(shared + 20 * PAGE));
    R(peek(shared + 20 * PAGE + 5));
    R(peek(shared + 21 * PAGE));
    R(peek(own));
    R(peek(own + 8 * PAGE));
    say("cut");
    R(ftruncate(file, 3 * PAGE + 10));
    R(peek(shared + 3 * PAGE));
    R(peek(shared + 4 * PAGE));
    R(poke(writable + 5 * PAGE, 1));
    R(peek(own));
    R(peek(own + 3 * PAGE));
    R(truncate("f", PAGE));
    R(peek(shared));
    R(peek(shared + PAGE));
    R(peek(own));
    R(ends(touch, shared + PAGE));
    R(ends(change, shared));
    R(ftruncate(file, 6 * PAGE));
    R(peek(shared + 5 * PAGE));
    R(peek(own));
    R(poke(own, 'p'));
    R(peek(shared + PAGE));
    say("parts");
    R(munmap(writable + 2 * PAGE, 2 * PAGE));
    R(ftruncate(file, 10 * PAGE));
    R(poke(writable + PAGE, '1'));
    R(poke(writable + 9 * PAGE, '9'));
    R(peek(shared + 9 * PAGE));
    R(poke(writable + 10 * PAGE, 0));
    char *moved = mremap(writable + 4 * PAGE, 252 * PAGE, 300 * PAGE, MREMAP_MAYMOVE);
    R(ftruncate(file, 200 * PAGE));
    R(peek(moved + 5 * PAGE));
    R(poke(moved + 190 * PAGE, 'm'));
    R(peek(shared + 194 * PAGE));
    R(peek(moved + 196 * PAGE));
    say("threads");
    R(ftruncate(file, 0));
    R(peek(shared));
    for (long page = 0; page < 128; page++)
        pwrite(file, "\1", 1, page * PAGE);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        pthread_create(threads + i, NULL, look, NULL);
    for (int i = 0; i < 4; i++) {
        void *sum;
        pthread_join(threads[i], &sum);
        R(sum);
    }
    R(sigaction(SIGSEGV, &(struct sigaction){.sa_handler = SIG_DFL}, &old));
    say("ours: %d", old.sa_sigaction == handler);
    R(ftruncate(file, 140 * PAGE));
    R(*(volatile char *)(shared + 139 * PAGE));
    R(peek(shared + 140 * PAGE));
    R(ends(change, shared));
    return 0;
}

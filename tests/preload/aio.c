/* POSIX asynchronous I/O. */
#include "t.h"
#include <aio.h>
#include <signal.h>

static volatile sig_atomic_t signalled, value;
static volatile int called;
static void on_signal(int signal, siginfo_t *info, void *context) {
    signalled = info->si_code == SI_ASYNCIO;
    value = info->si_value.sival_int;
}
static void in_thread(union sigval v) { called = v.sival_int; }

static long wait_for(struct aiocb *c) {
    const struct aiocb *list[] = {c};
    while (aio_error(c) == EINPROGRESS)
        aio_suspend(list, 1, NULL);
    int code = aio_error(c);
    if (code)
        say("error %s", strerrorname_np(code));
    return aio_return(c);
}

int main(int argc, char **argv) {
    begin(argc, argv);
    int fd = open("f", O_RDWR | O_CREAT, 0644);
    struct aiocb c = {.aio_fildes = fd, .aio_buf = "hello world", .aio_nbytes = 11, .aio_offset = 5, .aio_sigevent.sigev_notify = SIGEV_NONE};
    R(aio_write(&c));
    R(wait_for(&c));
    show("f");
    char text[20] = "";
    c.aio_buf = text, c.aio_nbytes = sizeof text, c.aio_offset = 11;
    R(aio_read(&c));
    R(wait_for(&c));
    say("%s", text);
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO};
    sigaction(SIGUSR1, &action, NULL);
    c.aio_sigevent = (struct sigevent){.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1, .sigev_value.sival_int = 77};
    R(aio_read(&c));
    R(wait_for(&c));
    while (!value)
        usleep(100);
    say("signalled %d value %d", signalled, value);
    c.aio_sigevent = (struct sigevent){.sigev_notify = SIGEV_THREAD, .sigev_notify_function = in_thread, .sigev_value.sival_int = 5};
    R(aio_fsync(O_SYNC, &c));
    R(wait_for(&c));
    while (!called)
        usleep(100);
    say("called %d", called);
    struct aiocb a = {.aio_fildes = fd, .aio_lio_opcode = LIO_WRITE, .aio_buf = "AB", .aio_nbytes = 2, .aio_offset = 0},
                 b = {.aio_fildes = fd, .aio_lio_opcode = LIO_WRITE, .aio_buf = "CD", .aio_nbytes = 2, .aio_offset = 2},
                 n = {.aio_lio_opcode = LIO_NOP};
    a.aio_sigevent.sigev_notify = b.aio_sigevent.sigev_notify = SIGEV_NONE;
    struct aiocb *list[] = {&a, NULL, &n, &b};
    R(lio_listio(LIO_WAIT, list, 4, NULL));
    R(aio_return(&a));
    R(aio_return(&b));
    show("f");
    R(aio_cancel(fd, NULL));
    close(fd);
    fd = open("f", O_RDONLY);
    a.aio_fildes = fd;
    R(aio_write(&a));
    R(wait_for(&a));
    fd = open("f", O_WRONLY | O_APPEND);
    a.aio_fildes = fd;
    R(aio_write(&a));
    R(wait_for(&a));
    show("f");
    return 0;
}

// A number that was just closed is not open for any call, whichever argument takes it.
// ways: short both patched kernel host cached cached-fuse fuse
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* Two were open; the number of the first is free again. */
static int closed(void) {
    int one = open("f", O_CREAT | O_RDWR, 0644), other = open("f", O_RDWR);
    close(other);
    close(one);
    return one;
}

#define ASK(...)                                                                                                                \
    do {                                                                                                                        \
        fd = closed();                                                                                                          \
        errno = 0;                                                                                                              \
        long result = (long)(__VA_ARGS__);                                                                                      \
        printf("%s = %s %s\n", #__VA_ARGS__, result == -1 ? "-1" : result == 0 ? "0" : "other", strerrorname_np(errno));         \
    } while (0)

static int select_one(int fd, int pipe) {
    fd_set set;
    struct timeval now = {0};
    FD_ZERO(&set);
    FD_SET(fd, &set);
    if (pipe >= 0) FD_SET(pipe, &set);
    return select(100, &set, 0, 0, &now);
}

static int pselect_one(int fd) {
    fd_set set;
    struct timespec now = {0};
    FD_ZERO(&set);
    FD_SET(fd, &set);
    return pselect(fd + 1, 0, &set, 0, &now, 0);
}

static int poll_one(int fd) {
    struct pollfd one = {fd, POLLIN, 0};
    int ready = poll(&one, 1, 0);
    printf("revents %x ", one.revents);
    return ready;
}

static int spawn_by(int fd) {
    posix_spawn_file_actions_t actions;
    pid_t child;
    char *argv[] = {"true", 0};
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fd, 1);
    errno = posix_spawn(&child, "/bin/true", &actions, 0, argv, environ);
    return errno ? -1 : 0;
}

static int send_it(int socket, int fd) {
    char room[CMSG_SPACE(sizeof fd)] = {0}, byte = 'x';
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *one = CMSG_FIRSTHDR(&message);
    *one = (struct cmsghdr){CMSG_LEN(sizeof fd), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(one), &fd, sizeof fd);
    return sendmsg(socket, &message, 0);
}

int main(void) {
    int fd, pipes[2], sockets[2];
    char buffer[300], *argv[] = {"x", 0}, *none[] = {0};
    struct stat st;
    pipe(pipes);
    socketpair(AF_UNIX, SOCK_STREAM, 0, sockets);
    int watcher = inotify_init(), events = epoll_create1(0);
    ASK(read(fd, buffer, 1));
    ASK(fstat(fd, &st));
    ASK(fpathconf(fd, _PC_NAME_MAX));
    ASK(fpathconf(fd, _PC_LINK_MAX));
    ASK(poll_one(fd));
    ASK(select_one(fd, -1));
    ASK(select_one(fd, pipes[1]));
    ASK(pselect_one(fd));
    ASK(dup2(fd, 50));
    ASK(fcntl(fd, F_DUPFD, 0));
    ASK(openat(fd, "x", O_RDONLY));
    ASK(symlinkat("x", fd, "y"));
    ASK(renameat(AT_FDCWD, "f", fd, "g"));
    ASK(linkat(fd, "", AT_FDCWD, "l", AT_EMPTY_PATH));
    ASK(linkat(AT_FDCWD, "f", fd, "g", 0));
    ASK(sendfile(pipes[1], fd, 0, 1));
    ASK(copy_file_range(fd, 0, fd, 0, 1, 0));
    ASK(mmap(0, 4096, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED ? -1 : 1);
    ASK(epoll_ctl(events, EPOLL_CTL_ADD, fd, &(struct epoll_event){EPOLLIN}));
    ASK(inotify_add_watch(fd, ".", IN_CREATE));
    ASK(fexecve(fd, argv, none));
    ASK(execveat(fd, "", argv, none, AT_EMPTY_PATH));
    ASK(syscall(SYS_kcmp, getpid(), getpid(), 0, fd, 0));
    ASK(spawn_by(fd));
    ASK(send_it(sockets[0], fd));
    ASK(name_to_handle_at(fd, "", (void *)buffer, (int *)buffer, AT_EMPTY_PATH));
    unlink("f");
    return 0;
}

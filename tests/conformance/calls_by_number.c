// Newer calls by their numbers, flags of pwritev2, and commands of fcntl and ioctl that few programs use.
// ways: short both patched host cached
// always: patched
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <unistd.h>

#define ASK(...)                                                                                         \
    do {                                                                                                 \
        errno = 0;                                                                                       \
        long result = (long)(__VA_ARGS__);                                                               \
        printf("%s = %ld %s\n", #__VA_ARGS__, result, result < 0 ? strerrorname_np(errno) : "");          \
    } while (0)

struct value {
    uint64_t value;
    uint32_t size, flags;
};

int main(void) {
    char buffer[4096] = {0}, name[64];
    int fd = open("f", O_CREAT | O_RDWR | O_APPEND, 0644), number = 1;
    struct value value = {(uintptr_t)"text", 4, 0}, room = {(uintptr_t)buffer, 100, 0}, wrong = {(uintptr_t)buffer, 100, 1};
    write(fd, "0123456789", 10);
    symlink("f", "link");
    ASK(syscall(463, AT_FDCWD, "f", 0, "user.a", &value, sizeof value));
    ASK(syscall(463, AT_FDCWD, "f", 0, "user.a", &(struct value){(uintptr_t)"x", 1, XATTR_CREATE}, sizeof value));
    ASK(syscall(464, AT_FDCWD, "f", 0, "user.a", &room, sizeof room));
    printf("%.4s\n", buffer);
    ASK(syscall(464, AT_FDCWD, "link", 0, "user.a", &room, sizeof room));
    ASK(syscall(464, AT_FDCWD, "link", AT_SYMLINK_NOFOLLOW, "user.a", &room, sizeof room));
    ASK(syscall(464, fd, "", AT_EMPTY_PATH, "user.a", &room, sizeof room));
    ASK(syscall(464, AT_FDCWD, "f", 0, "user.a", &wrong, sizeof wrong));
    ASK(syscall(464, AT_FDCWD, "f", 0, "user.a", &room, 8));
    ASK(syscall(464, AT_FDCWD, "f", 0, "user.a", &room, 8192));
    ASK(syscall(464, AT_FDCWD, "f", 1, "user.a", &room, sizeof room));
    ASK(syscall(465, AT_FDCWD, "f", 0, buffer, 100) > 0);
    ASK(syscall(466, AT_FDCWD, "f", 0, "user.a"));
    ASK(syscall(466, AT_FDCWD, "f", 0, "user.a"));
    ASK(syscall(464, AT_FDCWD, "missing", 0, "user.a", &room, sizeof room));
    struct iovec part = {"abc", 3};
    ASK(pwritev2(fd, &part, 1, 2, 0x20));
    ASK(pwritev2(fd, &part, 1, 2, 0x20 | RWF_APPEND));
    ASK(pwritev2(fd, &part, 1, 2, 0x40));
    ASK(pwritev2(fd, &part, 1, 2, 0x4000));
    ASK(preadv2(fd, &(struct iovec){buffer, 100}, 1, 0, RWF_NOWAIT));
    ASK(pread(fd, buffer, 100, 0));
    printf("%.10s\n", buffer);
    ASK(fcntl(fd, F_GET_SEALS));
    ASK(fcntl(fd, F_ADD_SEALS, 1));
    uint64_t hint = 77;
    ASK(fcntl(fd, F_SET_RW_HINT, &hint));
    ASK(fcntl(fd, F_SETLEASE, F_RDLCK));
    ASK(fcntl(fd, F_SETLEASE, F_UNLCK));
    ASK(fcntl(fd, F_GETLEASE));
    ASK(ioctl(fd, FIOASYNC, &number));
    number = 0;
    ASK(ioctl(fd, FIOASYNC, &number));
    ASK(ioctl(fd, FIBMAP, &number));
    ASK(ioctl(fd, FS_IOC_GETFLAGS, &number));
    ASK(ioctl(fd, 0x5401, buffer));
    off_t far = -1, here = 0;
    int plain = open("f", O_RDWR);
    ASK(copy_file_range(fd, &far, fd, &here, 20, 0));
    ASK(copy_file_range(fd, &far, plain, &here, 20, 0));
    int fifo[2];
    pipe(fifo);
    ASK(copy_file_range(fifo[0], 0, fd, 0, 10, 0));
    return 0;
}

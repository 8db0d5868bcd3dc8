/*
 * A FUSE daemon that means harm, at a socket: `hostile HOW /dev/fd/N`. It agrees on the
 * protocol, gives the root's attributes, and answers whatever else is asked as HOW says.
 */
#include <linux/fuse.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

static int fd;
static char room[1 << 20], nothing[200000];

static void say(uint64_t unique, const void *payload, size_t len, int error, uint32_t said)
{
    struct fuse_out_header head = { said ? said : sizeof head + len, error, unique };
    struct iovec parts[2] = { { &head, sizeof head }, { (void *)payload, len } };
    if (writev(fd, parts, 2) < 0)
        exit(1);
}

int main(int count, char **words)
{
    const char *how = words[1];
    const struct fuse_in_header *asked = (void *)room;
    fd = atoi(strrchr(words[count - 1], '/') + 1);
    while (read(fd, room, sizeof room) > 0) {
        uint64_t unique = asked->unique;
        if (asked->opcode == FUSE_INIT) {
            struct fuse_init_out out = { .major = 7, .minor = 31, .max_readahead = 1 << 17, .max_background = 12, .congestion_threshold = 9, .max_write = 1 << 17 };
            say(unique, &out, sizeof out, 0, 0);
        } else if (asked->opcode == FUSE_GETATTR) {
            struct fuse_attr_out out = { .attr = { .ino = 1, .blocks = 8, .mode = 040755, .nlink = 2 } };
            say(unique, &out, sizeof out, 0, 0);
        } else if (!strcmp(how, "strays")) {
            /* To nobody, to slots that are not there, to the past, with errors that are none, longer than any; then the truth. */
            const uint64_t strays[] = { 0, 1, 63, 64, 0xfe, 0xff, unique ^ 0x100, unique + (1ull << 40), -1ull };
            for (size_t i = 0; i < sizeof strays / sizeof *strays; i++)
                say(strays[i], nothing, 200, (int)(strays[i] & 7), 0);
            say(unique ^ 0x100, nothing, sizeof nothing, 0, 0);
            say(unique, nothing, 0, -2, 0);
            say(unique, nothing, sizeof(struct fuse_entry_out), 0, 0);
        } else if (!strcmp(how, "long")) {
            say(unique, nothing, sizeof nothing, 0, 0);
        } else if (!strcmp(how, "error")) {
            say(unique, nothing, 0, 12345, 0);
        } else if (!strcmp(how, "piece")) {
            say(unique, nothing, 60, 0, sizeof(struct fuse_out_header) + sizeof(struct fuse_entry_out));
        } else if (!strcmp(how, "short")) {
            if (write(fd, "abc", 3) < 0)
                return 1;
        } else if (!strcmp(how, "empty")) {
            if (write(fd, "", 0) < 0)
                return 1;
        } else if (!strcmp(how, "closes")) {
            close(fd);
            usleep(500000);
            return 0;
        }
        /* "silent": nothing. */
    }
    return 0;
}

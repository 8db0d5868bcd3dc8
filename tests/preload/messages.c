/* Messages to sockets that have a name in the directory. */
#include "t.h"
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>

static struct sockaddr_un name(const char *path) {
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    strcpy(at.sun_path, path);
    return at;
}

static struct iovec part = {"text", 4};

static struct msghdr to(struct sockaddr_un *at) {
    return (struct msghdr){.msg_name = at, .msg_namelen = sizeof *at, .msg_iov = &part, .msg_iovlen = 1};
}

int main(int argc, char **argv) {
    begin(argc, argv);
    int server = socket(AF_UNIX, SOCK_DGRAM, 0), client = socket(AF_UNIX, SOCK_DGRAM, 0), file = open("f", O_RDWR | O_CREAT, 0644);
    mkdir("d", 0755);
    struct sockaddr_un there = name("d/s"), plain = name("f"), none = name("d/none"), kernel = name("/dev/null");
    struct msghdr good = to(&there), bad = to(&plain), missing = to(&none), elsewhere = to(&kernel);
    char text[20] = "";
    R(bind(server, (void *)&there, sizeof there));
    R(sendmsg(client, &good, 0));
    R(recv(server, text, sizeof text, MSG_DONTWAIT));
    say("%s", text);
    R(sendmsg(client, &bad, 0));
    R(sendmsg(client, &missing, 0));
    R(sendmsg(client, &elsewhere, 0));
    R(sendmsg(file, &good, 0));
    R(sendmsg(client, (void *)-1L, 0));
    chdir("d");
    there = name("s");
    R(sendmsg(client, &good, 0));
    struct mmsghdr many[3] = {{good}, {good}, {missing}};
    R(sendmmsg(client, many, 3, 0));
    say("%u %u", many[0].msg_len, many[1].msg_len);
    R(sendmmsg(client, many + 2, 1, 0));
    for (int i = 0; i < 4; i++)
        R(recv(server, text, sizeof text, MSG_DONTWAIT));
    R(unlink("s"));
    R(sendmsg(client, &good, 0));
    return 0;
}

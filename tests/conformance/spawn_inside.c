// A program that lies in the directory is started by posix_spawn as any other is, whatever its file actions do to descriptors.
// ways: short both patched kernel host cached fuse
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static char here[PATH_MAX];

static char *in(const char *name) {
    static char path[4][2 * PATH_MAX];
    static int at;
    at = (at + 1) % 4;
    snprintf(path[at], sizeof path[at], "%s/%s", here, name);
    return path[at];
}

// What the started program sees of itself.
static int show(int argc, char **argv) {
    char text[PATH_MAX] = "";
    printf("  %s, %d arguments, fds", argv[1], argc);
    for (int fd = 0; fd < 40; fd++)
        if (fcntl(fd, F_GETFD) >= 0)
            printf(" %d", fd);
    ssize_t len = readlink("/proc/self/exe", text, sizeof text - 1);
    text[len < 0 ? 0 : len] = 0;
    printf("; exe %s", strrchr(text, '/') ? strrchr(text, '/') + 1 : text);
    char *got = getcwd(text, sizeof text);
    printf("; in %s", got ? strrchr(got, '/') + (got[1] != 0) : "-");
    char byte = '-';
    if (argc > 2)
        printf("; read %zd", read(atoi(argv[2]), &byte, 1));
    printf(" %c\n", byte);
    return 7;
}

static void start(const char *what, const char *file, posix_spawn_file_actions_t *actions, int by_path, char *fd) {
    char *argv[] = {"prog", (char *)what, fd, NULL};
    pid_t pid = -1;
    fflush(stdout);
    int error = (by_path ? posix_spawnp : posix_spawn)(&pid, file, actions, NULL, argv, environ), status = -1;
    if (error == 0 && waitpid(pid, &status, 0) < 0)
        status = -2;
    printf("%s: %s, status %d\n", what, error ? strerrorname_np(error) : "started", error || !WIFEXITED(status) ? -1 : WEXITSTATUS(status));
    if (actions) {
        posix_spawn_file_actions_destroy(actions);
        posix_spawn_file_actions_init(actions);
    }
}

static void write_file(const char *name, const char *text, mode_t mode) {
    int fd = open(name, O_CREAT | O_WRONLY | O_TRUNC, mode);
    if (write(fd, text, strlen(text)) != (ssize_t)strlen(text))
        perror(name);
    close(fd);
}

int main(int argc, char **argv) {
    if (argc > 1)
        return show(argc, argv);
    if (!getcwd(here, sizeof here))
        return 1;
    // Itself, as a file that is no younger than the directory's other files.
    char bytes[1 << 16];
    int from = open("/proc/self/exe", O_RDONLY), to = open("prog", O_CREAT | O_WRONLY, 0755);
    for (ssize_t len; (len = read(from, bytes, sizeof bytes)) > 0;)
        if (write(to, bytes, len) != len)
            return 1;
    close(from);
    close(to);
    write_file("data", "abc", 0644);
    write_file("script", "#!/bin/sh\necho \"  script $1\"; exit 5\n", 0755);
    write_file("inner", "#!./prog one\n", 0755);
    write_file("plain", "echo no", 0755);
    write_file("broken", "\177ELF and no more", 0755);
    mkdir("directory", 0755);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);

    for (int again = 0; again < 3; again++)
        start("absolute", in("prog"), NULL, 0, NULL);
    start("relative", "./prog", NULL, 0, NULL);
    start("script", in("script"), NULL, 0, NULL);
    start("its interpreter inside", in("inner"), NULL, 0, NULL);
    start("no program", in("plain"), NULL, 0, NULL);
    start("broken", in("broken"), NULL, 0, NULL);
    start("a directory", in("directory"), NULL, 0, NULL);
    start("missing", in("missing"), NULL, 0, NULL);
    start("below a file", in("data/x"), NULL, 0, NULL);
    chmod("broken", 0644);
    start("not executable", in("data"), NULL, 0, NULL);

    int data = open("data", O_RDONLY);
    char number[12];
    snprintf(number, sizeof number, "%d", data);
    start("inherits", in("prog"), NULL, 0, number);
    for (int fd = 3; fd < 30; fd++)
        posix_spawn_file_actions_adddup2(&actions, 2, fd + 1);
    start("numbers taken", in("prog"), &actions, 0, NULL);
    posix_spawn_file_actions_addclosefrom_np(&actions, 3);
    start("all closed", in("prog"), &actions, 0, NULL);
    posix_spawn_file_actions_addopen(&actions, 9, in("data"), O_RDONLY, 0);
    start("opened inside", in("prog"), &actions, 0, "9");
    posix_spawn_file_actions_addopen(&actions, 9, "/dev/null", O_RDONLY, 0);
    start("opened outside", in("prog"), &actions, 0, "9");
    posix_spawn_file_actions_adddup2(&actions, data, 11);
    posix_spawn_file_actions_addclose(&actions, data);
    start("moved", in("prog"), &actions, 0, "11");
    posix_spawn_file_actions_addchdir_np(&actions, in("directory"));
    start("elsewhere", in("prog"), &actions, 0, NULL);
    posix_spawn_file_actions_addopen(&actions, 9, in("missing"), O_RDONLY, 0);
    start("an action fails", in("prog"), &actions, 0, NULL);

    setenv("PATH", "/nowhere", 1);
    start("not in the path", "prog", NULL, 1, NULL);
    char path[3 * PATH_MAX];
    snprintf(path, sizeof path, "/nowhere:%s:%s:/bin", in("directory"), here);
    setenv("PATH", path, 1);
    start("in the path", "prog", NULL, 1, NULL);
    start("outside, in the path", "true", NULL, 1, NULL);
    setenv("PATH", ".", 1);
    start("in the directory it is in", "prog", NULL, 1, NULL);

    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    rlim_t before = limit.rlim_cur;
    limit.rlim_cur = data + 4;
    setrlimit(RLIMIT_NOFILE, &limit);
    start("few numbers", in("prog"), NULL, 0, number);
    limit.rlim_cur = before;
    setrlimit(RLIMIT_NOFILE, &limit);

    // It is changed: not the one that was started before.
    write_file("other", "#!/bin/sh\necho \"  another one\"; exit 3\n", 0755);
    rename("other", "prog");
    start("replaced", in("prog"), NULL, 0, NULL);
    unlink("prog");
    start("removed", in("prog"), NULL, 0, NULL);
    return 0;
}

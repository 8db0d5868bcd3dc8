/* The three standard streams when our descriptors are under them. */
#include "t.h"
#include <assert.h>
#include <err.h>
#include <error.h>
#include <wchar.h>

static void child(void (*body)(void), const char *title) {
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        int fd = open("so", O_WRONLY | O_CREAT | O_TRUNC, 0666);
        dup2(fd, 1);
        close(fd);
        fd = open("se", O_WRONLY | O_CREAT | O_TRUNC, 0666);
        dup2(fd, 2);
        close(fd);
        fd = open("si", O_RDONLY);
        dup2(fd, 0);
        close(fd);
        body();
        exit(7);
    }
    int status;
    waitpid(pid, &status, 0);
    say("%s: status %x", title, status);
    show("so");
    show("se");
}

/* The same in this process, with the descriptors put back afterwards. */
static void here(void (*body)(void), const char *title) {
    fflush(NULL);
    int saved[3];
    for (int i = 0; i < 3; i++)
        saved[i] = fcntl(i, F_DUPFD_CLOEXEC, 50);
    int fd = open("so", O_WRONLY | O_CREAT | O_TRUNC, 0666);
    dup2(fd, 1);
    close(fd);
    close(2);
    open("se", O_WRONLY | O_CREAT | O_TRUNC, 0666);
    close(0);
    open("si", O_RDONLY);
    body();
    fflush(NULL);
    for (int i = 0; i < 3; i++) {
        dup2(saved[i], i);
        close(saved[i]);
    }
    clearerr(stdin);
    say("%s, here", title);
    show("so");
    show("se");
}

static void printing(void) {
    printf("printf %d\n", 1);
    puts("puts");
    putchar('c');
    putchar_unlocked('u');
    putc_unlocked('\n', stdout);
    fwrite("fwrite\n", 1, 7, stdout);
    fputs("fputs\n", stdout);
    fprintf(stderr, "to stderr %d\n", fileno(stdout));
    for (int i = 0; i < 3000; i++)
        printf("%d ", i);
}
static void reading(void) {
    char line[100], word[20];
    int c = getchar();
    printf("first %c %d\n", c, scanf("%19s", word));
    printf("[%s] ", word);
    while (fgets(line, sizeof line, stdin))
        printf("[%s]", line);
    printf("eof %d\n", feof(stdin));
    rewind(stdin);
    printf("again %c\n", getchar_unlocked());
}
static void complaints(void) {
    errno = ENOENT;
    perror("perror");
    errno = EACCES;
    warn("warn %d", 1);
    warnx("warnx");
    printf("before error\n");
    error(0, ENOSPC, "error %d", 2);
    error(3, 0, "last");
}
static void grumbling(void) {
    errno = ENOENT;
    perror("perror");
    errno = EACCES;
    warn("warn %d", 1);
    printf("before error\n");
    error(0, ENOSPC, "error %d", 2);
    dprintf(2, "dprintf %d\n", 3);
    R(write(2, "raw\n", 4));
}
static void assertion(void) {
    printf("not flushed by abort\n");
    assert(!"false");
}
static void wide_out(void) {
    fwide(stdout, 1);
    wprintf(L"wide %d\n", 5);
    putwchar(L'x');
}
static void again(void) {
    printf("to so\n");
    fflush(stdout);
    int fd = open("so2", O_WRONLY | O_CREAT | O_TRUNC, 0666);
    int old = dup(1);
    dup2(fd, 1);
    printf("to so2\n");
    fflush(stdout);
    dup2(old, 1);
    printf("to so again\n");
    fflush(stdout);
    close(1);
    R(open("so3", O_WRONLY | O_CREAT | O_TRUNC, 0666));
    printf("to so3\n");
    fflush(stdout);
    P(freopen("so4", "w", stdout));
    printf("to so4\n");
    P(freopen("si", "r", stdin));
    R(getchar());
}
static void forked(void) {
    printf("before fork ");
    if (fork() == 0) {
        printf("child\n");
        exit(0);
    }
    wait(NULL);
    printf("parent\n");
}
static void quick(void) {
    printf("lost");
    _exit(4);
}
static void closed(void) {
    fclose(stdout);
    R(puts("x") < 0 ? -1 : 0);
    R(open("si", O_RDONLY));
}

int main(int argc, char **argv) {
    begin(argc, argv);
    int fd = open("si", O_WRONLY | O_CREAT, 0666);
    dprintf(fd, "hello world\nsecond line\nthird");
    close(fd);
    here(printing, "printing");
    here(reading, "reading");
    here(grumbling, "grumbling");
    child(printing, "printing");
    child(reading, "reading");
    child(complaints, "complaints");
    child(assertion, "assertion");
    child(wide_out, "wide");
    child(again, "again");
    show("so2");
    show("so3");
    show("so4");
    child(forked, "forked");
    child(quick, "quick");
    child(closed, "closed");
    return 0;
}

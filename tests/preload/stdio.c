/* Streams on files of the directory: every mode, every way to move about. */
#include "t.h"
#include <locale.h>
#include <wchar.h>

static void modes(void) {
    static const char *all[] = {"r", "r+", "w", "w+", "a", "a+", "wx", "we", "rb", "r+b", "rb+", "w+b", "ab", "q", "", "+", "rm", "rc"};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        for (int there = 0; there < 2; there++) {
            unlink("m");
            if (there) {
                int fd = open("m", O_WRONLY | O_CREAT, 0666);
                R(write(fd, "0123456789", 10));
                close(fd);
            }
            errno = 0;
            FILE *f = fopen("m", all[i]);
            say("fopen %s there %d = %s %s", all[i], there, f ? "set" : "null", f ? "" : strerrorname_np(errno));
            if (!f)
                continue;
            say("number %d flags %x cloexec %d", fileno(f), fcntl(fileno(f), F_GETFL) & (O_ACCMODE | O_APPEND), fcntl(fileno(f), F_GETFD));
            R(ftell(f));
            R(fgetc(f));
            say("error %d eof %d", ferror(f), feof(f));
            clearerr(f);
            R(fseek(f, 0, SEEK_CUR));
            R(fputs("abc", f) < 0 ? -1 : 0);
            R(fflush(f));
            R(ftell(f));
            rewind(f);
            R(fgetc(f));
            R(fclose(f));
            show("m");
        }
}

static void moving(void) {
    FILE *f = fopen("big", "w+");
    for (int i = 0; i < 20000; i++)
        fprintf(f, "line %d\n", i);
    R(ftello(f));
    R(fseeko(f, 12345, SEEK_SET));
    char line[100];
    P(fgets(line, sizeof line, f));
    P(fgets(line, sizeof line, f));
    say("%s", line);
    R(ungetc('Z', f));
    R(fgetc(f));
    R(ftell(f));
    R(fseek(f, -7, SEEK_END));
    P(fgets(line, sizeof line, f));
    say("%s", line);
    R(fseek(f, -1, SEEK_SET));
    R(fseek(f, 1L << 33, SEEK_SET));
    R(fputc('!', f));
    R(fflush(f));
    struct stat st;
    R(fstat(fileno(f), &st));
    say("size %ld blksize %ld", (long)st.st_size, (long)st.st_blksize);
    fpos_t at;
    R(fseek(f, 5, SEEK_SET));
    R(fgetpos(f, &at));
    int number = -1;
    R(fscanf(f, "%d", &number));
    say("number %d", number);
    R(fsetpos(f, &at));
    R(fgetc(f));
    R(ftruncate(fileno(f), 100));
    R(fseek(f, 0, SEEK_END));
    R(ftell(f));
    R(fclose(f));
    show("big");

    f = fopen("big", "r");
    char *text = NULL;
    size_t room = 0;
    long lines = 0, bytes = 0, got;
    while ((got = getline(&text, &room, f)) > 0)
        lines++, bytes += got;
    say("lines %ld bytes %ld eof %d", lines, bytes, feof(f));
    free(text);
    rewind(f);
    char block[4096];
    R(fread(block, 1, sizeof block, f));
    R(fwrite("x", 1, 1, f));
    say("error %d", ferror(f));
    R(fclose(f));

    f = fopen("buf", "w");
    R(setvbuf(f, NULL, _IONBF, 0));
    R(fputs("unbuffered\n", f) < 0);
    show("buf");
    R(fclose(f));
    f = fopen("buf", "w");
    R(setvbuf(f, NULL, _IOLBF, 0));
    fputs("a line\nhalf", f);
    show("buf");
    R(fclose(f));
    f = fopen("buf", "w");
    static char big[100000];
    memset(big, 'b', sizeof big);
    R(fwrite(big, 1, sizeof big, f));
    show("buf");
    R(fclose(f));
    show("buf");
}

static void two(void) {
    FILE *a = fopen("log", "a"), *b = fopen("log", "a+");
    setlinebuf(a);
    setlinebuf(b);
    for (int i = 0; i < 5; i++) {
        fprintf(a, "a%d\n", i);
        fprintf(b, "b%d\n", i);
    }
    rewind(b);
    char line[20];
    while (fgets(line, sizeof line, b))
        say("%s", line);
    R(fclose(a));
    R(fclose(b));
}

static void descriptors(void) {
    int fd = open("d", O_RDWR | O_CREAT, 0666);
    FILE *f = fdopen(fd, "w");
    R(fileno(f) - fd);
    fputs("through fdopen", f);
    R(fclose(f));
    R(close(fd));
    show("d");
    fd = open("d", O_RDONLY);
    P(fdopen(fd, "w"));
    P(fdopen(fd, "r+"));
    P(fdopen(fd, "z"));
    f = fdopen(fd, "r");
    char line[100];
    P(fgets(line, sizeof line, f));
    say("%s", line);
    R(fclose(f));
    fd = open("d", O_WRONLY);
    P(fdopen(fd, "r"));
    f = fdopen(fd, "a");
    R(fcntl(fd, F_GETFL) & O_APPEND);
    fputs(" and appended", f);
    R(fclose(f));
    show("d");
    P(fdopen(99, "r"));
    fd = open("d", O_RDONLY);
    close(fd);
    P(fdopen(fd, "r"));
    P(fdopen(fd, "w"));
    fd = open("d", O_WRONLY | O_TRUNC);
    R(dprintf(fd, "dprintf %d %s\n", 7, "x"));
    R(dprintf(fd, "%0200d\n", 1));
    R(close(fd));
    show("d");
    f = fopen("d", "r");
    R(close(fileno(f)));
    R(fgetc(f));
    R(fclose(f));
    f = tmpfile();
    R(fputs("t", f) < 0);
    rewind(f);
    R(fgetc(f));
    R(fclose(f));
}

static void wide(void) {
    setlocale(LC_ALL, "C.UTF-8");
    FILE *f = fopen("w", "w");
    R(fwide(f, 1) > 0);
    R(fputws(L"gr\u00fc\u00df dich \u4e16\n", f) < 0);
    R(fwprintf(f, L"%ls %d\n", L"\u00e9", 42) < 0);
    R(fclose(f));
    show("w");
    f = fopen("w", "r");
    wint_t c;
    while ((c = fgetwc(f)) != WEOF && c != L'\n')
        say("%x", (unsigned)c);
    R(ungetwc(L'\u00fc', f));
    R(fgetwc(f));
    R(ftell(f));
    R(fseek(f, 0, SEEK_SET));
    R(fgetwc(f));
    R(fclose(f));
    f = fopen("w", "r,ccs=UTF-8");
    R(fwide(f, 0) > 0);
    R(fileno(f));
    R(fgetwc(f));
    R(fgetwc(f));
    R(fgetwc(f));
    R(fclose(f));
    f = fopen("utf16", "w,ccs=UTF-16LE");
    R(fputws(L"ab\u00fc", f) < 0);
    R(fclose(f));
    show("utf16");
    f = fopen("w", "a+,ccs=UTF-8");
    R(fputws(L"end\u00fc", f) < 0);
    R(fclose(f));
    show("w");
    P(fopen("w", "wx,ccs=UTF-8"));
    P(fopen("no", "r,ccs=UTF-8"));
    P(fopen("w", "r,ccs=NOSUCHSET"));
}

static void reopened(void) {
    FILE *f = fopen("one", "w");
    fputs("first", f);
    int number = fileno(f);
    FILE *g = freopen("two", "w+", f);
    R(g == f);
    R(fileno(g) - number);
    fputs("second", g);
    rewind(g);
    R(fgetc(g));
    show("one");
    show("two");
    P(freopen(NULL, "a", g));
    R(fileno(g) - number);
    fputs(" more", g);
    fflush(g);
    show("two");
    P(freopen("/dev/null", "w", g));
    fputs("lost", g);
    R(fclose(g));
    show("two");
    f = fopen("/dev/null", "r");
    number = fileno(f);
    P(freopen("two", "r", f));
    R(fileno(f) - number);
    char line[40];
    P(fgets(line, sizeof line, f));
    say("%s", line);
    P(freopen("none/such", "r", f));
    R(open("one", O_RDONLY) - number);
    close(number);
    f = fopen("one", "r");
    P(freopen("two", "re", f));
    R(fcntl(fileno(f), F_GETFD));
    P(freopen("two", "q", f));
    f = fopen("one", "r");
    P(freopen("two", "r,ccs=UTF-8", f));
    R(fgetwc(f));
    R(fclose(f));
}

int main(int argc, char **argv) {
    begin(argc, argv);
    modes();
    moving();
    two();
    descriptors();
    wide();
    reopened();
    P(fopen("none/such", "r"));
    P(fopen("none/such", "w"));
    P(fopen("", "r"));
    mkdir("dir", 0777);
    P(fopen("dir", "w"));
    FILE *f = fopen("dir", "r");
    R(fgetc(f));
    R(fclose(f));
    symlink("loop", "loop");
    P(fopen("loop", "r"));
    char name[300];
    memset(name, 'n', 299);
    name[299] = 0;
    P(fopen(name, "w"));
    symlink("one", "link");
    f = fopen("link", "r");
    R(fgetc(f));
    /* left open: the exit must flush it */
    f = fopen("atexit", "w");
    fputs("flushed at exit", f);
    return 0;
}

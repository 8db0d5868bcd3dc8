#!/bin/sh
# needs: gcc
# What C programs ask of libc and libc does with its own calls: walks (nftw, ftw, fts, scandir, glob), streams opened, reopened, wide, buffered and not,
# temporary files, canonical paths, children.
cat >t.c <<'C'
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <ftw.h>
#include <glob.h>
#include <limits.h>
#include <locale.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <wchar.h>

/* Walks go in the order of the directory: lines are sorted before they are shown. */
static char lines[100][200];
static int count;
static void say(const char *format, ...)
{
	va_list list;
	va_start(list, format);
	vsnprintf(lines[count++ % 100], sizeof lines[0], format, list);
	va_end(list);
}
static int order(const void *a, const void *b) { return strcmp(a, b); }
static void show(const char *what)
{
	qsort(lines, count, sizeof lines[0], order);
	for (int i = 0; i < count; i++)
		printf("%s: %s\n", what, lines[i]);
	count = 0;
}
static int seen(const char *path, const struct stat *st, int type, struct FTW *at)
{
	say("%s %d %d %d %o %lld", path, type, at->level, at->base, st->st_mode, S_ISREG(st->st_mode) ? (long long)st->st_size : 0);
	return 0;
}
static int stops(const char *path, const struct stat *st, int type) { return type == FTW_F && st->st_size > 0 ? 42 : 0; }
static int prunes(const char *path, const struct stat *st, int type, struct FTW *at)
{
	say("%s", path);
	return strcmp(path + at->base, "e") ? FTW_CONTINUE : FTW_SKIP_SUBTREE;
}
static int by_size(const FTSENT **a, const FTSENT **b) { return strcmp((*a)->fts_name, (*b)->fts_name); }
static int hidden(const struct dirent *entry) { return entry->d_name[0] == '.' && entry->d_name[1] && entry->d_name[1] != '.'; }
static int unreadable(const char *path, int error) { printf("glob: %s: %s\n", path, strerror(error)); return 0; }

static void walks(void)
{
	printf("nftw %d\n", nftw("d", seen, 3, FTW_PHYS)), show("physical");
	printf("nftw %d\n", nftw("d", seen, 1, FTW_DEPTH)), show("depth, links followed");
	printf("nftw %d\n", nftw("d", seen, 9, FTW_CHDIR | FTW_PHYS | FTW_MOUNT)), show("chdir");
	printf("nftw %d\n", nftw("d", prunes, 9, FTW_ACTIONRETVAL | FTW_PHYS)), show("pruned");
	printf("ftw %d, ", ftw("d", stops, 9));
	printf("none %d ", nftw("none", seen, 9, 0)), puts(strerror(errno));
	char *roots[] = { "d", "none", NULL };
	FTS *fts = fts_open(roots, FTS_PHYSICAL, by_size);
	for (FTSENT *e; fts && (e = fts_read(fts));)
		printf("fts: %s %d %d\n", e->fts_path, e->fts_info, e->fts_level);
	fts_close(fts);
	struct dirent **names;
	int n = scandir("d", &names, NULL, alphasort);
	for (int i = 0; i < n; i++)
		printf("scandir: %s %d\n", names[i]->d_name, names[i]->d_type);
	n = scandir("d", &names, hidden, versionsort);
	printf("hidden: %d %s, none %d\n", n, n > 0 ? names[0]->d_name : "", scandir("none", &names, NULL, NULL));
	int dir = open("d", O_RDONLY | O_DIRECTORY);
	n = scandirat(dir, "e", &names, NULL, alphasort);
	printf("scandirat: %d %s\n", n, n > 2 ? names[2]->d_name : "");
	DIR *stream = fdopendir(dup(dir));
	int entries = 0;
	while (readdir(stream))
		entries++;
	rewinddir(stream);
	readdir(stream);
	long place = telldir(stream);
	struct dirent *e = readdir(stream);
	char next[256] = "";
	if (e)
		strcpy(next, e->d_name);
	seekdir(stream, place);
	e = readdir(stream);
	printf("readdir: %d entries, seekdir %s\n", entries, e && !strcmp(e->d_name, next) ? "finds it again" : "does not");
	closedir(stream);
	close(dir);
	static const char *patterns[] = { "d/*", "d/.*", "d/[ab]*", "*/e/?", "d/{a,e}", "none*", "~/d/a" };
	for (size_t p = 0; p < sizeof patterns / sizeof *patterns; p++) {
		glob_t found;
		int code = glob(patterns[p], GLOB_MARK | GLOB_BRACE | GLOB_TILDE | GLOB_PERIOD, unreadable, &found);
		printf("glob %s: %d", patterns[p], code);
		for (size_t i = 0; code == 0 && i < found.gl_pathc; i++)
			printf(" %s", found.gl_pathv[i] + (found.gl_pathv[i][0] == '/' ? strlen(getenv("HOME")) : 0));
		puts("");
	}
}

static void streams(void)
{
	FILE *f = fopen("s", "w+x");
	char *line = NULL, buffer[5000];
	size_t size = 0;
	fpos_t at;
	printf("again: %s\n", fopen("s", "wx") ? "opened" : strerror(errno));
	fprintf(f, "%d lines\n%s\n", 3, "second");
	fgetpos(f, &at);
	fputs("third\n", f);
	rewind(f);
	while (getline(&line, &size, f) > 0)
		printf("line: %s", line);
	printf("end %d error %d at %ld\n", feof(f) != 0, ferror(f), ftell(f));
	fsetpos(f, &at);
	fputs("THIRD and longer\n", f);
	fseek(f, -7, SEEK_END);
	printf("tail: %s", fgets(buffer, sizeof buffer, f));
	f = freopen("s", "a+", f);
	fputs("appended\n", f);
	fseek(f, 0, SEEK_SET);
	fscanf(f, "%d", &count);
	printf("scanned %d\n", count), count = 0;
	f = freopen(NULL, "r", f);
	printf("first: %s", f && fgets(buffer, sizeof buffer, f) ? buffer : "none\n");
	printf("refused: %d ", fputs("x", f)), puts(strerror(errno));
	printf("away: %s\n", freopen("none/x", "r", f) ? "opened" : strerror(errno));
	f = fopen("b", "w");
	setvbuf(f, NULL, _IONBF, 0);
	fputs("unbuffered", f);
	printf("%ld there\n", (long)(stat("b", &(struct stat){ 0 }) == 0 ? lseek(fileno(f), 0, SEEK_CUR) : -1));
	fclose(f);
	f = fopen("b", "r+");
	setvbuf(f, buffer, _IOFBF, 16);
	fseek(f, 2, SEEK_SET);
	printf("%c", getc(f)), ungetc('U', f), printf("%c", getc(f)), fseek(f, 0, SEEK_CUR), putc('!', f), fflush(f), puts("");
	fclose(f);
	f = fdopen(open("b", O_RDWR | O_APPEND), "a");
	fputs(" appended", f), fclose(f);
	f = fopen("b", "re");
	printf("%zu: %.*s\n", fread(buffer, 1, 100, f), 19, buffer), fclose(f);
	int in = dup(0);
	printf("stdin: %s", freopen("s", "r", stdin) && fgets(buffer, sizeof buffer, stdin) ? buffer : "none\n");
	dup2(in, 0), clearerr(stdin);
	fflush(stdout);
	int out = dup(1);
	if (freopen("o", "w", stdout))
		puts("into a file"), fflush(stdout), system("echo a child too");
	fflush(stdout), dup2(out, 1);
	system("cat o");
}

static void wide(void)
{
	wchar_t text[100] = L"";
	FILE *f = fopen("w", "w,ccs=UTF-8");
	printf("wide: %d\n", f ? fwprintf(f, L"\x00e9t\x00e9 %ls %d\n", L"\x65e5\x672c", 7) : -1);
	fputwc(0x1f600, f), fputws(L"\nlast\n", f), printf("orientation %d\n", fwide(f, 0) > 0), fclose(f);
	f = fopen("w", "r,ccs=UTF-8");
	fgetws(text, 100, f);
	printf("%zu characters, %x", wcslen(text), text[0]);
	wint_t c = getwc(f);
	ungetwc(c, f), c = getwc(f), getwc(f);
	printf(" %x at %ld\n", c, ftell(f));
	fwscanf(f, L"%99ls", text), printf("%ls\n", text);
	f = freopen("u", "w,ccs=UTF-16LE", f);
	fputws(L"sixteen\n", f), fclose(f), fflush(stdout);
	system("cksum w u");
}

static void others(void)
{
	char path[PATH_MAX], name[] = "tmp/mkXXXXXX", with[] = "tmp/mkXXXXXX.end", dir[] = "tmp/dirXXXXXX";
	FILE *f = tmpfile();
	fputs("temporary", f), rewind(f), printf("%s\n", fgets(path, 100, f)), fclose(f);
	int a = mkstemp(name), b = mkostemps(with, 4, O_CLOEXEC);
	struct stat st;
	fstat(a, &st);
	printf("mkstemp %d %o, %d %s, %d\n", a >= 0, st.st_mode, b >= 0, strrchr(with, '.'), mkdtemp(dir) != NULL);
	printf("remove %d %d %d, none %d\n", remove(name), remove(with), remove(dir), remove("none"));
	printf("realpath %s, ", realpath("d/e/../l", path) ? strrchr(path, '/') : "none"), puts(realpath("none/x", path) ? path : strerror(errno));
	char *cwd = get_current_dir_name(), *canonical = canonicalize_file_name("d/l");
	printf("in %s, %s\n", strrchr(cwd, '/'), canonical ? canonical + strlen(cwd) : "none");
	printf("access %d %d, %ld\n", euidaccess("d/a", R_OK), eaccess("none", F_OK), pathconf("d", _PC_NAME_MAX));
	f = popen("cat d/a; cat >piped", "w"), fputs("through\n", f), printf("popen %d\n", pclose(f));
	f = popen("cat piped; exit 3", "r"), printf("%s", fgets(path, 100, f)), printf("popen %d\n", WEXITSTATUS(pclose(f)));
	setenv("PATH", "bin:/usr/bin:/bin", 1);
	fflush(stdout);
	if (fork() == 0)
		execlp("found", "found", "in a relative PATH", NULL), perror("execlp"), _exit(1);
	char *text = NULL;
	size_t size;
	f = open_memstream(&text, &size), fputs("memory", f), fclose(f), printf("%s %zu\n", text, size);
}

int main(void)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	setlocale(LC_ALL, "C.UTF-8");
	walks(), streams(), wide(), others();
	while (wait(NULL) > 0)
		;
	return 0;
}
C
mkdir -p d/e/f bin
echo a >d/a
: >d/b
: >d/.hid
echo x >d/e/x
ln -s a d/l
ln -s none d/dangling
ln d/a d/e/hard
mkfifo d/p
chmod 750 d/e
printf '#!/bin/sh\necho "found: $1"\n' >bin/found
chmod 755 bin/found
gcc -Wall -Werror -Wno-unused-result -O1 -o t t.c || exit
./t <d/a
echo "exit $?"
rm t
ls tmp

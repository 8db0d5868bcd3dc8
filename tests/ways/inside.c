/* What libc does inside itself with files of the program: a time zone by path, a
 * database of log-ins, the expansion of wildcards. inside DIR: a line each. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <utmpx.h>
#include <wordexp.h>

/* The smallest zone file: always an hour and a half ahead of UTC, called XYZ. */
static const unsigned char zone[] = "TZif\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
				    "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\1\0\0\0\4"
				    "\0\0\x15\x18\0\0XYZ";

static void put(const char *path, const void *data, size_t bytes)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);

	if (fd < 0 || write(fd, data, bytes) != (ssize_t)bytes || close(fd) < 0)
		perror(path);
}

static void time_zone(const char *dir)
{
	char value[512], text[64];
	time_t zero = 0;

	snprintf(value, sizeof value, "%s/zone", dir);
	put(value, zone, sizeof zone);
	snprintf(value, sizeof value, ":%s/zone", dir);
	setenv("TZ", value, 1);
	strftime(text, sizeof text, "%H:%M %Z", localtime(&zero));
	printf("time zone: %s\n", text);
}

static void log_ins(const char *dir)
{
	char path[512];
	struct utmpx entry = { .ut_type = USER_PROCESS, .ut_pid = 7, .ut_id = "id", .ut_user = "somebody", .ut_line = "tty" }, *found;

	snprintf(path, sizeof path, "%s/utmp", dir);
	put(path, "", 0);
	utmpxname(path);
	setutxent();
	printf("log-in put: %s\n", pututxline(&entry) ? "yes" : "no");
	setutxent();
	found = getutxent();
	printf("log-in found: %s\n", found ? found->ut_user : "none");
	endutxent();
}

static void wildcards(const char *dir)
{
	char path[512];
	wordexp_t words;

	snprintf(path, sizeof path, "%s/one.word", dir);
	put(path, "", 0);
	snprintf(path, sizeof path, "%s/two.word", dir);
	put(path, "", 0);
	snprintf(path, sizeof path, "%s/*.word", dir);
	if (wordexp(path, &words, 0) == 0)
		for (size_t i = 0; i < words.we_wordc; i++)
			printf("word: %s\n", strrchr(words.we_wordv[i], '/') + 1);
	snprintf(path, sizeof path, "$(echo by a shell)");
	if (wordexp(path, &words, 0) == 0)
		printf("command: %zu words\n", words.we_wordc);
}

int main(int argc, char **argv)
{
	if (argc != 2)
		return 2;
	time_zone(argv[1]);
	log_ins(argv[1]);
	wildcards(argv[1]);
	return 0;
}

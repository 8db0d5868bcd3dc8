/* A program without a loader. static cat|say|here|rest FILE: copies its input, writes two
 * lines, tells its working directory and makes a file there, reads what a relative name has. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int copy(int from)
{
	char buffer[4096];
	ssize_t got;

	while ((got = read(from, buffer, sizeof buffer)) > 0)
		if (write(1, buffer, got) != got)
			return 2;
	return got < 0;
}

int main(int argc, char **argv)
{
	char path[4096];
	int fd;

	if (argc < 2)
		return 3;
	if (!strcmp(argv[1], "cat"))
		return copy(0);
	if (!strcmp(argv[1], "say"))
		return dprintf(1, "one\n") != 4 || dprintf(1, "two\n") != 4;
	if (!strcmp(argv[1], "here")) {
		fd = open("made", O_WRONLY | O_CREAT, 0600);
		if (fd < 0 || close(fd) < 0 || !getcwd(path, sizeof path))
			return 1;
		return puts(path) < 0;
	}
	fd = open(argv[2], O_RDONLY);
	return fd < 0 || copy(fd);
}

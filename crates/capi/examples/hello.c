/* A file system in a few lines: hello [IMAGE]. Without an image it lives in memory. */
#include "../include/bypath.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static int failed(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	return 1;
}

int main(int argc, char **argv)
{
	char text[64] = "";
	struct stat st;
	struct dirent *entry;
	bp_dir *dir;
	int fd;
	bp_ns *ns = bp_open_namespace();

	if (!ns || bp_mount(ns, argc > 1 ? argv[1] : "mem:", "/", NULL) < 0)
		return failed("mount");
	if (bp_mkdir(ns, "/greetings", 0755) < 0)
		return failed("mkdir");

	fd = bp_open(ns, "/greetings/hello", O_RDWR | O_CREAT | O_EXCL, 0644);
	if (fd < 0 || bp_write(ns, fd, "hello, world\n", 13) != 13)
		return failed("write");
	if (bp_pread(ns, fd, text, sizeof text - 1, 0) != 13 || strcmp(text, "hello, world\n"))
		return failed("read");
	if (bp_close(ns, fd) < 0)
		return failed("close");

	if (bp_stat(ns, "greetings/hello", &st) < 0 || st.st_size != 13)
		return failed("stat");
	if (bp_open(ns, "/nobody", O_RDONLY, 0) != -1 || errno != ENOENT)
		return failed("open of what is not there");

	dir = bp_opendir(ns, "/greetings");
	if (!dir)
		return failed("opendir");
	while ((entry = bp_readdir(dir)))
		if (entry->d_name[0] != '.')
			printf("%s: %s", entry->d_name, text);
	bp_closedir(dir);

	if (bp_unlink(ns, "/greetings/hello") < 0 || bp_rmdir(ns, "/greetings") < 0)
		return failed("remove");
	return bp_close_namespace(ns) < 0 ? failed("close_namespace") : 0;
}

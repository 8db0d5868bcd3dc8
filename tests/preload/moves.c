/* Two threads change the working directory at once: between two directories, and from one to a place outside. */
#include "t.h"
#include <limits.h>
#include <pthread.h>

#define MOVES 3000
#define ROUNDS 10
static const char *places[2];
static int failed;

static void *moves(void *first) {
    for (long i = (long)first; i < MOVES; i++)
        if (chdir(places[i % 2])) __atomic_add_fetch(&failed, 1, __ATOMIC_RELAXED);
    return 0;
}

/* Whether what the process says of where it is fits together. */
static int is_whole(void) {
    char here[PATH_MAX], name[PATH_MAX + 8];
    struct stat by_path, by_dot;
    if (!getcwd(here, sizeof here) || (strcmp(here, places[0]) && strcmp(here, places[1]))) return 0;
    if (stat(here, &by_path) || stat(".", &by_dot)) return 0;
    snprintf(name, sizeof name, "%s/moved", here);
    int fd = open("moved", O_CREAT | O_EXCL | O_WRONLY, 0644);
    int there = fd >= 0 && access(name, F_OK) == 0;
    if (fd >= 0) close(fd), unlink("moved");
    return there && by_path.st_ino == by_dot.st_ino && by_path.st_dev == by_dot.st_dev;
}

static void test(const char *what, const char *one, const char *other) {
    int whole = 0;
    places[0] = one, places[1] = other;
    for (int round = 0; round < ROUNDS; round++) {
        pthread_t threads[2];
        for (long i = 0; i < 2; i++) pthread_create(&threads[i], 0, moves, (void *)i);
        for (int i = 0; i < 2; i++) pthread_join(threads[i], 0);
        whole += is_whole();
    }
    say("%s: %d of %d moves failed, whole %d of %d times", what, failed, ROUNDS * 2 * MOVES, whole, ROUNDS);
}

int main(int argc, char **argv) {
    char one[PATH_MAX], two[PATH_MAX], outside[] = "/tmp/bypath-moves.XXXXXX";
    begin(argc, argv);
    snprintf(one, sizeof one, "%s/one", argv[1]);
    snprintf(two, sizeof two, "%s/two", argv[1]);
    if (mkdir(one, 0755) || mkdir(two, 0755) || !mkdtemp(outside)) return 1;
    test("two directories", one, two);
    test("outside and back", one, outside);
    if (chdir("/") || rmdir(outside)) say("outside: %s", strerrorname_np(errno));
    return 0;
}

/* Descriptors get the lowest free number, from a bound on too, whoever had it before. */
#include "t.h"

int main(int argc, char **argv) {
    begin(argc, argv);
    int held[40], count = 0;
    unsigned seed = 7;
    close(open("f", O_WRONLY | O_CREAT, 0666));
    mkdir("d", 0777);
    for (int step = 0; step < 3000; step++) {
        seed = seed * 1103515245 + 12345;
        unsigned what = seed >> 16 & 7, which = seed >> 20, lowest = (seed >> 24) % 20;
        int fd = -1;
        if (count == 40 || (what >= 5 && count > 0)) {
            int at = which % count;
            say("%d: close %d = %d", step, held[at], close(held[at]));
            held[at] = held[--count];
            continue;
        }
        switch (what) {
        case 0: fd = open("f", O_RDONLY); break;
        case 1: fd = open("d", O_RDONLY | O_DIRECTORY); break;
        case 2: fd = open("/dev/null", O_RDONLY); break;
        case 3: fd = count ? fcntl(held[which % count], F_DUPFD_CLOEXEC, lowest) : open("f", O_RDONLY); break;
        default: fd = count ? dup(held[which % count]) : open("d", O_RDONLY); break;
        }
        say("%d: %u from %u = %d", step, what, lowest, fd);
        held[count++] = fd;
    }
    return 0;
}

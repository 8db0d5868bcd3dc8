// Stores through a shared mapping and writes to other bytes of the same pages, at once: none of either is lost.
// ways: short both patched kernel host cached cached-fuse
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGES = 128, ROUNDS = 60, WORDS = 4096 / sizeof(unsigned long), STORED = 128, WRITTEN = 2 };
static int file;
static unsigned long *map, round_number;
static pthread_barrier_t go;

static void *stores(void *unused) {
    pthread_barrier_wait(&go);
    for (int i = 0; i < PAGES; i++)
        map[i * WORDS + STORED] = round_number;
    return unused;
}

static void *writes(void *unused) {
    pthread_barrier_wait(&go);
    for (int i = 0; i < PAGES; i++)
        if (pwrite(file, &round_number, sizeof round_number, i * 4096L + WRITTEN * 8) != sizeof round_number)
            perror("pwrite");
    return unused;
}

static unsigned long at(int page, int word) {
    unsigned long found = 0;
    if (pread(file, &found, sizeof found, page * 4096L + word * 8) != sizeof found)
        perror("pread");
    return found;
}

int main(void) {
    int lost_stores = 0, lost_writes = 0;
    pthread_barrier_init(&go, 0, 2);
    for (round_number = 1; round_number <= ROUNDS; round_number++) {
        pthread_t a, b;
        unlink("f");
        file = open("f", O_RDWR | O_CREAT, 0644);
        if (ftruncate(file, PAGES * 4096L))
            perror("ftruncate");
        map = mmap(0, PAGES * 4096L, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (map == MAP_FAILED)
            return perror("mmap"), 1;
        pthread_create(&a, 0, stores, 0);
        pthread_create(&b, 0, writes, 0);
        pthread_join(a, 0);
        pthread_join(b, 0);
        for (int i = 0; i < PAGES; i++) {
            lost_stores += at(i, STORED) != round_number || map[i * WORDS + STORED] != round_number;
            lost_writes += at(i, WRITTEN) != round_number || map[i * WORDS + WRITTEN] != round_number;
        }
        munmap(map, PAGES * 4096L);
        close(file);
    }
    // A page that was stored into long ago is not sent back over what was appended, or copied, since.
    file = open("g", O_RDWR | O_CREAT, 0644);
    if (write(file, "first", 5) != 5)
        perror("write");
    char *text = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0), got[32] = {0};
    text[0] = 'F';
    int end = open("g", O_WRONLY | O_APPEND);
    if (write(end, " second", 7) != 7)
        perror("append");
    text[6] = 'S';
    msync(text, 4096, MS_SYNC);
    printf("%zd %s, mapped %s\n", pread(file, got, 31, 0), got, text);
    printf("lost: %d stores, %d writes\n", lost_stores, lost_writes);
    return 0;
}

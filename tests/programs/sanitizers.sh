#!/bin/bash
# needs: gcc setarch
# ignore: /(asan|tsan)$
# Programs with a sanitizer: its runtime stands between the program, the library and libc.
cat >t.c <<'C'
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int count, char **arguments) {
    char line[99];
    size_t bytes = 0;
    FILE *file = fopen("o", "w");
    for (int i = 0; i < 1000; i++) fprintf(file, "%d\n", i);
    fclose(file);
    file = fopen("o", "r");
    while (fgets(line, sizeof line, file)) bytes += strlen(line);
    fclose(file);
    printf("%zu\n", bytes);
    fflush(stdout);
    if (fork() == 0) {
        FILE *lines = popen("wc -l <o", "r");
        printf("%s", fgets(line, sizeof line, lines));
        exit(pclose(lines));
    }
    wait(NULL);
    char *small = malloc(4);
    if (count > 1) strcpy(small, arguments[1]);
    free(small);
    return 0;
}
C
gcc -O0 -g -w -fsanitize=address t.c -o asan && gcc -O0 -g -w -fsanitize=thread t.c -o tsan
# At addresses that are not drawn: with many bits of them, the runtimes of some compilers do not start every time.
for _ in 1 2 3; do
    setarch -R ./asan
    echo $?
done
setarch -R ./asan wrong 2>&1 | sed -n 's/.*\(SUMMARY: AddressSanitizer: [a-z-]*\).*/\1/p'
setarch -R ./tsan
echo $?

// Lists of arguments and variables that are not there are EFAULT for exec, whatever is executed: also a program that the
// library can't be loaded into, whose arguments are looked at first.
// ways: short both patched kernel host cached
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

// A static program that ends with 3.
static void make_static(const char *path) {
    const unsigned char code[] = {0xbf, 3, 0, 0, 0, 0xb8, 60, 0, 0, 0, 0x0f, 0x05};
    struct program { Elf64_Ehdr head; Elf64_Phdr segment; unsigned char code[sizeof code]; } file;
    memset(&file, 0, sizeof file);
    memcpy(file.head.e_ident, ELFMAG, 4);
    file.head.e_ident[EI_CLASS] = ELFCLASS64, file.head.e_ident[EI_DATA] = ELFDATA2LSB, file.head.e_ident[EI_VERSION] = EV_CURRENT;
    file.head.e_type = ET_EXEC, file.head.e_machine = EM_X86_64, file.head.e_version = EV_CURRENT;
    file.head.e_entry = 0x400000 + offsetof(struct program, code);
    file.head.e_phoff = offsetof(struct program, segment);
    file.head.e_ehsize = sizeof file.head, file.head.e_phentsize = sizeof file.segment, file.head.e_phnum = 1;
    file.segment.p_type = PT_LOAD, file.segment.p_flags = PF_R | PF_X, file.segment.p_vaddr = 0x400000;
    file.segment.p_filesz = file.segment.p_memsz = sizeof file, file.segment.p_align = 4096;
    memcpy(file.code, code, sizeof code);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0755);
    if (write(fd, &file, sizeof file) != sizeof file)
        perror(path);
    close(fd);
}

static void tried(const char *what, const char *path, char **argv, char **envp) {
    static const char *ways[] = {"execve", "fork by number", "vfork", "execveat"};
    printf("%s:", what);
    for (int way = 0; way < 4; way++) {
        fflush(stdout);
        int status, *told = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        pid_t pid = way == 2 ? vfork() : fork();
        if (pid == 0) {
            switch (way) {
            case 1: syscall(SYS_execve, path, argv, envp); break;
            case 3: syscall(SYS_execveat, AT_FDCWD, path, argv, envp, 0); break;
            default: execve(path, argv, envp);
            }
            *told = errno;
            _exit(77);
        }
        waitpid(pid, &status, 0);
        if (WIFSIGNALED(status))
            printf(" %s: signal %d", ways[way], WTERMSIG(status));
        else
            printf(" %s: %s", ways[way], WEXITSTATUS(status) == 77 ? strerror(*told) : WEXITSTATUS(status) == 3 ? "runs" : "?");
        munmap(told, 4096);
    }
    puts("");
}

int main(void) {
    char outside[64], text[100];
    snprintf(outside, sizeof outside, "/tmp/exec-pointers.%d", getpid());
    make_static(outside);
    make_static("static");
    int fd = open("script", O_WRONLY | O_CREAT, 0755);
    if (write(fd, "#!/bin/sh\nexit 3\n", 17) != 17)
        perror("script");
    close(fd);
    // Two pages, of which the second can't be read, for lists; and two for strings.
    char *page = mmap(NULL, 16384, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *text_page = page + 8192;
    mprotect(page + 4096, 4096, PROT_NONE);
    mprotect(text_page + 4096, 4096, PROT_NONE);
    memset(text_page + 4000, 'x', 96);
    char *good[] = {"name", "-c", "exit 3", NULL}, *none[] = {NULL};
    char *unended[] = {"name", text_page + 4000, NULL}, *wild[] = {"name", page + 4096, NULL};
    char **cut = (char **)(page + 4096 - 2 * sizeof(char *));
    cut[0] = "name", cut[1] = "second";
    struct { const char *name; char **list; } lists[] = {{"good", good}, {"no page", (char **)(page + 4096)}, {"cut", cut},
        {"a string cut", unended}, {"a string away", wild}, {"high", (char **)-4096}};
    struct { const char *name, *path; } programs[] = {{"static outside", outside}, {"static inside", "static"},
        {"script", "script"}, {"shell", "/bin/sh"}};
    for (unsigned program = 0; program < 4; program++)
        // A static program is not started from a directory in a mount.
        for (unsigned list = program < 2; list < 6; list++) {
            snprintf(text, sizeof text, "%s, arguments: %s", programs[program].name, lists[list].name);
            tried(text, programs[program].path, lists[list].list, none);
            snprintf(text, sizeof text, "%s, variables: %s", programs[program].name, lists[list].name);
            if (list)
                tried(text, programs[program].path, good, lists[list].list);
        }
    unlink(outside);
    return 0;
}

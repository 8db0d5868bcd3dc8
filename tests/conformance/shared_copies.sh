# The copies of libraries and programs that the kernel gets without a kernel mount: one for all programs of a session, of the
# file as it is now.
# own
# needs: cc setpriv
. "$tests/conformance/own.sh"
chmod 755 .
echo 'int answer(void) { return 1; }' >one.c
echo 'int answer(void) { return 2; }' >two.c
cc -shared -fPIC -o one.so one.c && cc -shared -fPIC -o two.so two.c || fail 'no libraries'
cat >user.c <<'C'
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
int main(int count, char **paths) {
    for (int i = 1; i < count; i++) {
        void *library = dlopen(paths[i], RTLD_NOW);
        int (*answer)(void) = library ? dlsym(library, "answer") : 0;
        char line[512], *name;
        unsigned long inode = 0, found = 0;
        FILE *maps = fopen("/proc/self/maps", "r");
        while (fgets(line, sizeof line, maps))
            if ((name = strrchr(paths[i], '/')) && strstr(line, name + 1) && sscanf(line, "%*s %*s %*s %*s %lu", &found) == 1) inode = found;
        fclose(maps);
        printf("%d %lu\n", answer ? answer() : -1, inode);
    }
    return 0;
}
C
cc -o user user.c -ldl || fail 'no program'
"$bypath" mkfs i --size 64M >/dev/null || fail 'no image'
chmod 666 i
cat >steps <<'S'
cp one.so /bp/l.so
cp user /bp/user
chmod 755 /bp/user /bp/l.so
sleep 0.3
for _ in 1 2 3 4; do ./user /bp/l.so & done >first
wait
./user /bp/l.so >again
setpriv --reuid 65534 --regid 65534 --clear-groups ./user /bp/l.so >other
for _ in 1 2; do /bp/user /bp/l.so; readlink /proc/self/exe; done >inside
cp two.so /bp/l.so
./user /bp/l.so >at-once
sleep 0.3
./user /bp/l.so >anew
./user /bp/l.so >>anew
S
touch first again other inside at-once anew
chmod 666 other
"$bypath" run --no-fuse --mount "$work/i:/bp" -- sh steps || fail 'the session ends with an error'
copy=$(sort -u again)
same 'all have one copy, whoever makes it first' "$(tail -1 first)" "$copy"
same 'who comes later too' "$(sort -u first | tail -1)" "$copy"
same 'another user has it from root' "$(cat other)" "$copy"
same 'programs of the mount too' "$(grep ' ' inside | sort -u)" "$copy"
same 'what was changed is read as it is' "$(cut -d' ' -f1 at-once)" 2
same 'and shared again' "$(sort -u anew | wc -l) $(cut -d' ' -f1 anew | sort -u)" '1 2'
same 'nothing is left' "$(find /dev/shm -name 'bypath-said-*' | wc -l)" 0
exit $failed

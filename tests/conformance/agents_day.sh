#!/bin/bash
# An agent's day: twenty clones of a working tree, in ten of which files are changed in every way there is, built and committed; the
# same in real copies beside it. Every tree, every commit and every difference between two trees is that of the copies, nobody sees
# what another one did, and when all are dropped the space is what it was. Then a worktree of git that is cloned and repaired.
# own
# needs: git gcc make python3
# seconds: 120
set -u
. "$(dirname "$0")/own.sh"
failed=0
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
export GIT_AUTHOR_DATE='1700000000 +0000' GIT_COMMITTER_DATE='1700000000 +0000'
I=$work/image
"$bypath" mkfs --size 512M image >/dev/null || fail mkfs
mkdir m real
in_session() { "$bypath" run --no-fuse --mount "image:$work/m" -- "$@"; }
used() { in_session python3 -c 'import os; s = os.statvfs("m"); print((s.f_blocks - s.f_bfree) * 4 // 1024)'; }

python3 - <<'P'
import os, random
rng = random.Random(3)
os.makedirs("real/main/src")
for d in range(20):
    os.makedirs(f"real/main/node_modules/p{d}/lib")
    for f in range(10):
        with open(f"real/main/node_modules/p{d}/lib/f{f}.js", "w") as file:
            file.write("".join(rng.choice("abc\n") for _ in range(rng.randrange(1, 12000))))
with open("real/main/node_modules/large", "wb") as file:
    file.write(rng.randbytes(6_000_000))
for i in range(3):
    with open(f"real/main/src/{i}.c", "w") as file:
        file.write(f"int f{i}(void) {{ return {i}; }}\n")
with open("real/main/src/main.c", "w") as file:
    file.write("int f0(void), f1(void), f2(void);\nint main(void) { return f0() + f1() + f2(); }\n")
with open("real/main/Makefile", "w") as file:
    file.write("O = $(patsubst %.c,%.o,$(wildcard src/*.c))\nprogram: $O\n\tgcc -o $@ $O\n%.o: %.c\n\tgcc -O0 -c -o $@ $<\n")
with open("real/main/.gitignore", "w") as file:
    file.write("*.o\nprogram\n")
P
git -C real/main -c init.defaultBranch=main init -q && git -C real/main add -A && git -C real/main commit -qm base || fail "git in the kernel's files"
make -s -C real/main || fail make
cat >agent.sh <<'S'
# agent.sh DIR NUMBER: what one does.
cd "$1" && sed -i "s/return 1/return 1$2/" src/1.c && echo "int g$2;" >>src/main.c && : >"node_modules/p$(($2 % 20))/lib/f1.js" &&
    rm -r "node_modules/p$((($2 + 7) % 20))" && mv src/0.c "src/moved$2.c" && python3 - "$2" <<'P' && make -s && git add -A && git commit -qm "$2"
import mmap, os, sys
number = int(sys.argv[1])
with open("node_modules/large", "r+b") as file:
    if number % 3 == 0:
        with mmap.mmap(file.fileno(), 0) as map:
            map[5000 * number] = 1
    elif number % 3 == 1:
        os.pwrite(file.fileno(), b"edited" * number, 100_000 * number)
    else:
        file.truncate(3_000_000 + number)
P
S
# expected.py DIR DIR: what `bypath diff` should say of two trees, without what git keeps of inodes and times.
cat >expected.py <<'P'
import filecmp, os, sys
def say(a, b, at):
    names = lambda d: set(os.listdir(os.path.join(d, at))) - {".git"}
    for name in sorted(names(a) | names(b), key=os.fsencode):
        path = os.path.join(at, name)
        x, y = os.path.join(a, path), os.path.join(b, path)
        if not os.path.lexists(y):
            print("D", path + "/" * os.path.isdir(x), sep="\t")
        elif not os.path.lexists(x):
            print("A", path + "/" * os.path.isdir(y), sep="\t")
        elif os.path.isdir(x):
            say(a, b, path)
        elif not filecmp.cmp(x, y, shallow=False):
            print("M", path, sep="\t")
say(sys.argv[1], sys.argv[2], "")
P
"$bypath" import -q real/main "$I:/main" || fail import
before=$(used)
for i in $(seq 20); do
    "$bypath" clone -q "$I:/main" "$I:/agent$i" || fail "clone $i"
done
for i in $(seq 10); do cp -a real/main "real/agent$i"; done
# Some 2 MiB each are directories and names; 9 MiB each would be copies.
[ $(($(used) - before)) -le 50 ] || fail "twenty clones take $(($(used) - before)) MiB"
in_session bash -c 'for i in $(seq 10); do bash agent.sh "m/agent$i" "$i" || exit 1; done' || fail "a day in the image"
for i in $(seq 10); do bash agent.sh "real/agent$i" "$i" || fail "a day in the kernel's files"; done
in_session bash -c 'failed=0
    for i in main $(seq -f agent%g 10); do
        diff -r --no-dereference -x .git "m/$i" "real/$i" || failed=1
        [ "$(git -C "m/$i" rev-parse HEAD)" = "$(git -C "real/$i" rev-parse HEAD)" ] || { echo "$i: another commit"; failed=1; }
        [ -z "$(git -C "m/$i" status --porcelain)" ] && git -C "m/$i" fsck --strict >/dev/null 2>&1 || { echo "$i: git"; failed=1; }
    done
    exit $failed' || fail "the trees are not those of the copies"
for i in $(seq 10); do
    for pair in "main agent$i" "agent$i agent$((i % 10 + 1))" "agent$i agent$(((i + 3) % 10 + 1))"; do
        set -- $pair
        "$bypath" diff "$I:/$1" "$I:/$2" | grep -v '	\.git/' >got
        python3 expected.py "real/$1" "real/$2" >wanted
        [ -s wanted ] && cmp -s got wanted || fail "$1 and $2: $(diff got wanted)"
    done
done

# A worktree of git: cloned, told of its place, used beside the one that it was made of.
in_session bash -c 'git -C m/main worktree add -q -b w "$PWD/m/tree" && bypath=$1 && "$bypath" clone -q m/tree m/second &&
    sed -i "s,worktrees/tree,worktrees/second," m/second/.git && cp -r m/main/.git/worktrees/tree m/main/.git/worktrees/second &&
    git -C m/main worktree repair "$PWD/m/second" >/dev/null 2>&1 && git -C m/second switch -q -c second &&
    echo x >m/second/new && git -C m/second add new && git -C m/second commit -qm new &&
    [ "$(git -C m/tree log --oneline | wc -l)" = 1 ] && [ "$(git -C m/main log --oneline second | wc -l)" = 2 ] &&
    [ -z "$(git -C m/tree status --porcelain)" ] && git -C m/main worktree remove --force "$PWD/m/tree" && git -C m/main worktree remove --force "$PWD/m/second"' \
    bash "$bypath" || fail "a worktree of git"

"$bypath" drop -q $(seq -f "$I:/agent%g" 20) || fail drop
same "what is shared when all is gone" "$("$bypath" dump image | grep -c 'is shared')" 0
[ $(($(used) - before)) -le 1 ] || fail "$(used) MiB are in use when all is gone, $before before"
"$bypath" check image >/dev/null || fail check
exit $failed

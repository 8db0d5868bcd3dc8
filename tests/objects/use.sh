# Real programs in the directory $1; what they say does not tell where it is. `sums`: what they have left.
cd "$1" || exit
sums() { find . -type f ! -path '*/.git/*' | LC_ALL=C sort | xargs md5sum; }
if [ "${2:-}" = sums ]; then
    sums
    exit
fi
export GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
seed=$(mktemp -d) || exit
trap 'rm -rf "$seed"' EXIT
mkdir -p "$seed/tree/d/e" "$seed/tree/empty"
seq 1 5000 >"$seed/tree/d/numbers"
: >"$seed/tree/d/nothing"
python3 -c 'import random, sys; sys.stdout.buffer.write(random.Random(7).randbytes(20_000_000))' >"$seed/tree/large"
for n in $(seq 40); do echo "file $n" >"$seed/tree/d/e/f$n"; done

echo cp; cp -r "$seed/tree" copied && diff -r "$seed/tree" copied && echo same
echo tar; tar -C "$seed" -cf "$seed/t.tar" tree && mkdir untarred && tar -C untarred -xf "$seed/t.tar" && diff -r "$seed/tree" untarred/tree && echo same
echo rsync; rsync -a "$seed/tree/" synced && diff -r "$seed/tree" synced && rsync -ai "$seed/tree/" synced && echo same
echo sed; sed -i 's/^7$/seven/' copied/d/numbers && grep -n seven copied/d/numbers
echo append; echo end >>copied/d/numbers && tail -n 2 copied/d/numbers
echo truncate; truncate -s 1000 copied/large && stat -c %s copied/large && truncate -s 5000 copied/large && md5sum <copied/large
echo dd; dd if=/dev/zero of=untarred/tree/large bs=1000 seek=9 count=3 conv=notrunc status=none && md5sum <untarred/tree/large
echo mv; mv copied moved && ls moved && test ! -e copied && mv moved/d/numbers moved/d/nothing && wc -l <moved/d/nothing
echo refused; ls missing 2>/dev/null || echo missing; mkdir moved 2>/dev/null || echo there
echo rmdir; rmdir moved 2>/dev/null || echo not empty; rmdir moved/empty && rm -r synced && ls
echo git; git init -q -b main "$seed/r" && cp -r "$seed/tree/d" "$seed/r/" && git -C "$seed/r" add . && git -C "$seed/r" commit -qm one
git clone -q "$seed/r" clone && echo more >>clone/d/numbers && git -C clone commit -qam two && git -C clone status --short && git -C clone log --format=%s && git -C clone fsck
echo sqlite; sqlite3 db 'create table t(a); insert into t values(1),(2); begin; insert into t select a + 10 from t; commit; select sum(a) from t; pragma integrity_check;'
echo python; python3 - <<'P'
import os, random

draw, model = random.Random(1), bytearray()
with open("random", "w+b") as file:
    for step in range(200):
        at, data = draw.randrange(200_000), draw.randbytes(draw.randrange(1, 3000))
        file.seek(at)
        file.write(data)
        model.extend(bytes(max(0, at - len(model))))
        model[at : at + len(data)] = data
        if step % 50 == 0:
            os.fsync(file.fileno())
        if step % 97 == 0:
            file.truncate(100_000)
            model.extend(bytes(max(0, 100_000 - len(model))))
            del model[100_000:]
    file.seek(0)
    assert file.read() == bytes(model)
assert open("random", "rb").read() == bytes(model)
held = open("random", "rb")
os.unlink("random")
assert held.read() == bytes(model), "removed while it is open"
with open("new", "w") as file:
    file.write("a")
    file.flush()
    os.rename("new", "newer")
    file.write("b")
print(open("newer").read())
P
sums

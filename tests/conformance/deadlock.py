# Whoever closes a circle of processes that wait for one another's record locks is told so; who only waits is not.
# ways: short both patched kernel host cached fuse
import errno, fcntl, os, time

def ring(count, files):
    """Process i holds byte i and waits for byte i + 1; one of them must be told, the others get what they want."""
    for name in set(files): open(name, "w").write("x" * 100)
    ready, children = os.pipe(), []
    gate = os.pipe()
    for i in range(count):
        child = os.fork()
        if child == 0:
            os.close(gate[1])
            own, other = open(files[i], "r+"), open(files[(i + 1) % count], "r+")
            fcntl.lockf(own, fcntl.LOCK_EX, 1, i)
            os.write(ready[1], b"r")
            os.read(gate[0], 1)
            try:
                fcntl.lockf(other, fcntl.LOCK_EX, 1, (i + 1) % count)
                os._exit(0)
            except OSError as e:
                os._exit(1 if e.errno == errno.EDEADLK else 2)
        children.append(child)
    for i in range(count): os.read(ready[0], 1)
    for end in ready + gate: os.close(end)
    codes = sorted(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)
    print(count, len(set(files)), "told", codes.count(1), "served", codes.count(0))

ring(2, ["a", "a"])
ring(2, ["a", "b"])
ring(5, ["a", "b", "c", "a", "b"])

# No circle: the holder lets go after a while, and asks again for what the other has then.
held = open("a", "r+")
fcntl.lockf(held, fcntl.LOCK_EX, 1, 0)
child = os.fork()
if child == 0:
    mine = open("a", "r+")
    fcntl.lockf(mine, fcntl.LOCK_EX, 1, 1)
    fcntl.lockf(mine, fcntl.LOCK_EX, 1, 0)
    time.sleep(0.1)
    os._exit(0)
time.sleep(0.2)
fcntl.lockf(held, fcntl.LOCK_UN, 1, 0)
fcntl.lockf(held, fcntl.LOCK_EX, 1, 1)
print("waited", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

# Descriptors that are sent over a socket, to oneself and to other programs: the same file, at the same offset (which each has of
# its own from then on), as it was opened; and what socket calls say of files.
# ways: short both patched host
# seconds: 60
import array, errno, os, socket, subprocess, sys

if len(sys.argv) > 1:
    peer = socket.socket(fileno=int(sys.argv[1]))
    while True:
        text, fds, _, _ = socket.recv_fds(peer, 100, 10)
        if not text:
            break
        answers = []
        for fd in fds:
            st = os.fstat(fd)
            try:
                answers.append(os.read(fd, 3).decode())
            except OSError as error:
                answers.append(errno.errorcode[error.errno])
            try:
                answers.append(os.write(fd, b"W"))
            except OSError as error:
                answers.append(errno.errorcode[error.errno])
            answers.append((os.path.samestat(st, os.stat(text.decode())), os.get_inheritable(fd)))
            os.close(fd)
        peer.send(repr(answers).encode())
    sys.exit()

with open("f", "w") as file:
    file.write("0123456789")
os.mkdir("d")
os.symlink("f", "link")
ours, theirs = socket.socketpair()
child = subprocess.Popen([sys.executable, sys.argv[0] if "__file__" not in globals() else __file__, str(theirs.fileno())], pass_fds=[theirs.fileno()])
theirs.close()

def send(name, *fds):
    socket.send_fds(ours, [name.encode()], list(fds))
    print(name, ours.recv(1000).decode())

reader = os.open("f", os.O_RDONLY)
os.read(reader, 2)
send("f", reader)
send("f", os.open("f", os.O_WRONLY | os.O_APPEND))
second, third = os.open("f", os.O_RDONLY), os.open("f", os.O_RDONLY)
send("f", os.open("f", os.O_RDWR), second, os.open("/dev/null", os.O_RDONLY))
send("d", os.open("d", os.O_RDONLY | os.O_DIRECTORY))
send("f", os.open("f", os.O_PATH))
os.rename("f", "g")
send("g", third)
os.unlink("g")
os.symlink("/dev/null", "g")
# Closed here as soon as it is sent.
last = os.open("h", os.O_RDWR | os.O_CREAT)
os.write(last, b"last")
os.lseek(last, 0, os.SEEK_SET)
socket.send_fds(ours, [b"h"], [last])
os.close(last)
print("h", ours.recv(1000).decode())
ours.close()
print(child.wait())

# To oneself, by recvmsg with room for fewer; the numbers are the lowest.
one, other = socket.socketpair()
fds = [os.open("h", os.O_RDONLY) for _ in range(3)]
socket.send_fds(one, [b"x"], fds)
for fd in fds:
    os.close(fd)
data, control, flags, _ = other.recvmsg(10, socket.CMSG_SPACE(8))
got = array.array("i")
for level, kind, text in control:
    got.frombytes(text[: len(text) // 4 * 4])
print(data, len(got), bool(flags & socket.MSG_CTRUNC), list(got) == fds[:len(got)], [os.read(fd, 10) for fd in got])
socket.send_fds(one, [b"y"], [got[0]])
_, again, _, _ = socket.recv_fds(other, 10, 1)
print([os.fstat(fd).st_ino == os.stat("h").st_ino for fd in again])

# None of them is a socket.
fd = os.open("h", os.O_RDWR)
for name, call in (
    ("fileno", lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM, fileno=fd)),
    ("guess", lambda: socket.socket(fileno=fd)),
):
    try:
        call()
    except OSError as error:
        print(name, errno.errorcode[error.errno])
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
room, length = ctypes.create_string_buffer(128), ctypes.c_uint(128)
for name, args in (("getsockname", (room, ctypes.byref(length))), ("getpeername", (room, ctypes.byref(length))), ("listen", (1,)),
                   ("getsockopt", (1, 3, room, ctypes.byref(length))), ("setsockopt", (1, 2, room, 4)), ("shutdown", (2,)),
                   ("accept", (None, None)), ("accept4", (None, None, 0)), ("recvfrom", (room, 1, 0, None, None)), ("recvmsg", (room, 0)),
                   ("sendmsg", (room, 0)), ("bind", (room, 16)), ("connect", (room, 16)), ("sendto", (room, 1, 0, None, 0))):
    ctypes.set_errno(0)
    print(name, getattr(libc, name)(fd, *args), errno.errorcode.get(ctypes.get_errno()))

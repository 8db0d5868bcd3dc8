# Sockets inside: the names that are told are those that were bound; by every call, to all processes.
# ways: short both patched kernel
import os, socket, stat

here = os.getcwd()
def show(name): return name.replace(here, "HERE") if isinstance(name, str) else name

server = socket.socket(socket.AF_UNIX)
server.bind("stream")
server.listen()
print(server.getsockname(), stat.S_ISSOCK(os.stat("stream").st_mode))
client = socket.socket(socket.AF_UNIX)
client.bind(here + "/client")
client.connect(here + "/stream")
there, peer = server.accept()
print(show(peer), show(there.getpeername()), show(there.getsockname()), show(client.getpeername()), show(client.getsockname()))
one, other = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
one.bind("one"), other.bind("other")
one.sendto(b"text", "other")
print(other.recvfrom(100))
one.sendmsg([b"more"], [], 0, "other")
print(other.recvmsg(100))
pid = os.fork()
if pid == 0:
    child = socket.socket(socket.AF_UNIX)
    child.connect("stream")
    print("child", child.getpeername(), flush=True)
    os._exit(0)
server.accept()
os.waitpid(pid, 0)
try: socket.socket(socket.AF_UNIX).bind("stream")
except OSError as e: print(e.strerror)
os.rename("stream", "moved")
again = socket.socket(socket.AF_UNIX); again.connect("moved"); print(again.getpeername())
os.unlink("moved"), os.unlink("client"), os.unlink("one"), os.unlink("other")
try: socket.socket(socket.AF_UNIX).connect("moved")
except OSError as e: print(e.strerror)

#!/bin/sh
# needs: python3
# way: kernel
# Descriptors sent over sockets: to another program, back to the sender, of files that are renamed and removed, at an offset, for appending; many in one
# message, beside credentials, and some that are no files.
cat >send.py <<'P'
import array, os, socket, struct, subprocess, sys
ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
child = subprocess.Popen([sys.executable, 'receive.py', str(theirs.fileno())], pass_fds=[theirs.fileno()])
def ask(what, *fds):
    socket.send_fds(ours, [what.encode()], list(fds))
    print(what, ours.recv(4096).decode(), flush=True)
with open('a', 'w+') as f:
    f.write('0123456789' * 10); f.flush(); f.seek(33)
    ask('read', f.fileno())
    os.rename('a', 'b'); ask('read', f.fileno())
    os.unlink('b'); ask('read', f.fileno())
    ask('write', f.fileno()); f.seek(0); print(repr(f.read()))
    ask('stat', f.fileno())
with open('log', 'a') as f:
    f.write('one\n'); f.flush(); ask('append', f.fileno()); f.write('three\n')
print(open('log').read())
d = os.open('.', os.O_RDONLY | os.O_DIRECTORY)
ask('directory', d); os.close(d)
r, w = os.pipe(); null = os.open('/dev/null', os.O_RDWR); ro = os.open('log', os.O_RDONLY)
os.write(w, b'through the pipe'); ask('read', r); os.close(r); os.close(w)
ask('refuse', ro)
many = [os.open(f'm{i}', os.O_RDWR | os.O_CREAT, 0o640) for i in range(40)]
[os.write(fd, b'%d' % i) for i, fd in enumerate(many)]
ask('many', *many[:20], null, *many[20:], ro)
print(sorted(os.listdir('.')), [os.pread(fd, 9, 0) for fd in many[:3]], os.lseek(many[0], 0, 1))
credentials = (socket.SOL_SOCKET, socket.SCM_CREDENTIALS, struct.pack('3i', os.getpid(), os.getuid(), os.getgid()))
ours.sendmsg([b'credentials'], [credentials, (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [many[7]]))])
print(ours.recv(4096).decode())
a, b = socket.socketpair()
socket.send_fds(a, [b'x'], [many[5], many[6]])
back = socket.recv_fds(b, 9, 9)[1]
print([os.pread(fd, 9, 0) for fd in back], [os.fstat(x).st_ino == os.fstat(y).st_ino for x, y in zip(back, many[5:])])
os.pwrite(back[0], b'back', 0); print(os.pread(many[5], 9, 0))
ours.close(); print('exit', child.wait())
P
cat >receive.py <<'P'
import os, socket, sys
s = socket.socket(fileno=int(sys.argv[1]))
while True:
    what, fds, _, _ = socket.recv_fds(s, 100, 64)
    what = what.decode()
    if not what: break
    try:
        if what == 'read': answer = repr(os.read(fds[0], 20))
        elif what == 'write': answer = str(os.pwrite(fds[0], b'changed', 3))
        elif what == 'append': answer = str(os.write(fds[0], b'two\n'))
        elif what == 'stat': t = os.fstat(fds[0]); answer = f'{t.st_size} {t.st_nlink} {t.st_mode:o}'
        elif what == 'directory': answer = str(sorted(os.listdir(fds[0]))[:3])
        elif what == 'refuse': answer = str(os.write(fds[0], b'x'))
        else: answer = str([os.fstat(fd).st_size for fd in fds])
    except OSError as e: answer = str(e)
    [os.close(fd) for fd in fds]
    s.send(answer.encode())
P
python3 send.py

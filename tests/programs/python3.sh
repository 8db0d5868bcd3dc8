#!/bin/bash
# needs: python3
# os, pathlib, shutil, tempfile, mmap, subprocess, multiprocessing, locks, zip, sqlite, from one script.
cat >t.py <<'P'
import os, sys, pathlib, shutil, tempfile, mmap, subprocess, stat, fcntl, glob, json, zipfile, errno, struct, io
def sh(*a): print(a)
p = pathlib.Path('d/e'); p.mkdir(parents=True); (p/'f').write_text('hello\n'*3); sh((p/'f').read_text(), sorted(x.name for x in p.iterdir()), p.exists(), (p/'f').stat().st_size)
with open('u', 'w', encoding='utf8') as f: f.write('é\n'); f.flush(); os.fsync(f.fileno())
with open('u', 'a+b') as f: f.write(b'x'); f.seek(0); sh(f.read(), f.tell())
with open('r', 'w+b', buffering=0) as f: f.write(b'0123456789'); f.seek(3); f.truncate(); sh(f.tell(), os.fstat(f.fileno()).st_size); os.pwrite(f.fileno(), b'zz', 8); sh(os.pread(f.fileno(), 20, 0)); os.writev(f.fileno(), [b'a', b'b']); sh(os.lseek(f.fileno(), 0, os.SEEK_END))
fd = os.open('d', os.O_RDONLY); sh(os.listdir(fd)); g = os.open('x', os.O_CREAT|os.O_WRONLY, 0o600, dir_fd=fd); os.close(g); os.rename('x', 'y', src_dir_fd=fd, dst_dir_fd=fd); sh(sorted(os.listdir('d')), os.stat('y', dir_fd=fd).st_mode); os.unlink('y', dir_fd=fd); os.fchdir(fd); sh(os.getcwd().split('/')[-1]); os.chdir('..'); os.close(fd)
os.symlink('r', 's'); sh(os.readlink('s'), os.path.islink('s'), os.path.realpath('s') == os.path.realpath('r')); os.link('r', 'h'); sh(os.stat('r').st_nlink, os.path.samefile('r', 'h')); os.utime('r', ns=(10**18+1, 10**18+2)); sh(os.stat('r').st_mtime_ns, os.stat('r').st_atime_ns); os.chmod('r', 0o604); sh(oct(os.stat('r').st_mode)); os.mkfifo('p'); sh(stat.S_ISFIFO(os.stat('p').st_mode)); sh(os.access('r', os.X_OK), os.statvfs('.').f_namemax)
for bad in (lambda: open('none'), lambda: os.rmdir('d'), lambda: os.mkdir('d'), lambda: os.listdir('r'), lambda: os.open('s', os.O_NOFOLLOW), lambda: open('r/x'), lambda: os.rename('d', 'd/e/g'), lambda: open('n'*256, 'w'), lambda: os.link('d', 'dl'), lambda: open('d', 'w'), lambda: os.readlink('r'), lambda: os.removexattr('r', 'user.n')):
    try: bad(); sh('?')
    except OSError as e: sh(errno.errorcode[e.errno])
os.setxattr('r', 'user.k', b'v'*100) if hasattr(os, 'setxattr') else 0; sh(os.getxattr('r', 'user.k')[:3], [x for x in os.listxattr('r') if x.startswith('user')])
shutil.copytree('d', 'd2'); shutil.copy2('r', 'r2'); shutil.move('d2', 'd3'); sh(sorted(str(x) for x in pathlib.Path('.').rglob('*') if 'tmp' not in str(x))); sh(sorted(glob.glob('d*/**', recursive=True))); shutil.rmtree('d3'); sh(sorted((r, sorted(d), sorted(f)) for r, d, f in os.walk('d'))); sh(shutil.disk_usage('.').total > 0)
with tempfile.TemporaryDirectory() as t: open(t+'/a', 'w').write('x'); sh(os.listdir(t))
with tempfile.TemporaryFile() as f: f.write(b'tmp'); f.seek(0); sh(f.read())
with tempfile.NamedTemporaryFile() as f: f.write(b'n'); f.flush(); sh(os.path.getsize(f.name))
sh([e.name for e in sorted(os.scandir('d'), key=lambda e: e.name)], [e.is_dir() for e in os.scandir('d')])
with open('m', 'wb') as f: f.truncate(3*4096+100)
with open('m', 'r+b') as f:
    with mmap.mmap(f.fileno(), 0) as m: m[0:5] = b'start'; m[8192:8197] = b'third'; m.flush(); sh(m[0:6], len(m), m.find(b'third'))
    f.seek(8192); sh(f.read(5)); f.write(b'!'); sh(mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)[8192:8198]); c = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_COPY); c[0:4] = b'priv'; f.seek(0); sh(f.read(5), c[0:5])
sh(subprocess.run(['cat', 'u'], capture_output=True).stdout); sh(subprocess.check_output('echo hi > q; cat q; pwd | wc -l', shell=True)); sh(subprocess.run(['cat'], stdin=open('q'), stdout=open('q2', 'w')).returncode, open('q2').read()); sh(subprocess.run(['ls', 'e'], cwd='d', capture_output=True).stdout); fd = os.open('q', os.O_RDONLY); os.set_inheritable(fd, True); sh(subprocess.run(['sh', '-c', f'cat <&{fd}'], close_fds=False, capture_output=True).stdout, os.read(fd, 9)); os.close(fd)
fd = os.open('o', os.O_CREAT|os.O_RDWR|os.O_APPEND); pid = os.fork()
if pid == 0: os.write(fd, b'child\n'); os._exit(3)
sh(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])); os.write(fd, b'parent\n'); os.lseek(fd, 0, 0); sh(os.read(fd, 100)); e = os.dup(fd); os.close(fd); sh(os.lseek(e, 0, 1)); os.dup2(e, 50); os.close(e); sh(os.pread(50, 5, 0)); fcntl.flock(50, fcntl.LOCK_EX|fcntl.LOCK_NB); fcntl.lockf(50, fcntl.LOCK_EX|fcntl.LOCK_NB)
if os.fork() == 0:
    n = os.open('o', os.O_RDWR)
    for lock in (fcntl.flock, fcntl.lockf):
        try: lock(n, fcntl.LOCK_EX|fcntl.LOCK_NB); print('got')
        except OSError as x: print('locked', errno.errorcode[x.errno])
    sys.stdout.flush(); os._exit(0)
os.wait(); os.closerange(40, 60)
with zipfile.ZipFile('z.zip', 'w') as z: z.writestr(zipfile.ZipInfo('a'), 'x'*1000)
sh(zipfile.ZipFile('z.zip').namelist(), json.load(io.StringIO('[1]'))); fd = os.open('.', os.O_TMPFILE|os.O_RDWR); os.write(fd, b'anon'); os.link(f'/proc/self/fd/{fd}', 'linked', src_dir_fd=0); os.close(fd); sh(open('linked').read()); fd = os.open('hole', os.O_RDWR|os.O_CREAT); os.pwrite(fd, b'x', 1 << 20); sh(os.lseek(fd, 0, os.SEEK_DATA), os.lseek(fd, 0, os.SEEK_HOLE)); os.posix_fallocate(fd, 0, 2 << 20); sh(os.fstat(fd).st_size, os.fstat(fd).st_blocks); os.copy_file_range(fd, os.open('hole2', os.O_CREAT|os.O_WRONLY), 4096, offset_src=(1 << 20) - 1); sh(os.path.getsize('hole2'))
import threading, multiprocessing
def work(i):
    for j in range(50): open(f'th{i}-{j}', 'w').write(str(j)); os.rename(f'th{i}-{j}', f'tr{i}-{j}'); os.unlink(f'tr{i}-{j}') if j % 2 else 0
ts = [threading.Thread(target=work, args=(i,)) for i in range(4)]; [t.start() for t in ts]; [t.join() for t in ts]; sh(len(glob.glob('tr*')))
with multiprocessing.get_context('fork').Pool(2) as pool: pool.map(work, range(4, 8))
sh(len(glob.glob('tr*'))); import t_mod; sh(t_mod.x)
P
echo 'x = "imported"' >t_mod.py
python3 t.py
echo "exit $?"

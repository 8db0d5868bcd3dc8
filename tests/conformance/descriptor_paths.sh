# Names under which the kernel shows descriptors: /dev/fd/N/, /proc/self/fd/N, /proc/self/cwd, listed ones.
# ways: short both patched kernel
echo a >f; mkdir d; echo b >d/g
ls -d /dev/fd/3/ 3<d; ls /dev/fd/3/ 3<d; stat -c %F /dev/fd/3/ 3<d; du -a /dev/fd/3/ 3<d | wc -l; find -H /dev/fd/3 3<d
stat -c %F /dev/fd/3 3<f; stat -c %F /dev/fd/3/ 3<f 2>/dev/null || echo no directory
(cd /dev/fd/3/ 3<d && pwd -P | sed 's,.*/,,')
here() { sed "s,^$PWD,,"; }
readlink /dev/fd/3 3<f | here; readlink /proc/self/fd/3 3<f | here; readlink -f /dev/stdin <f | here; readlink /dev/stdin
python3 -c 'import os
here = os.getcwd()
def show(text): return text.replace(here, "", 1)
fd = os.open("f", os.O_RDONLY)
for name in f"/proc/self/fd/{fd}", f"/proc/thread-self/fd/{fd}", f"/proc/{os.getpid()}/fd/{fd}", f"/proc/self/task/{os.getpid()}/fd/{fd}":
    print(show(os.readlink(name)), os.stat(name).st_size)
listing = os.open("/proc/self/fd", os.O_RDONLY | os.O_DIRECTORY)
print(show(os.readlink(str(fd), dir_fd=listing)), os.stat(str(fd), dir_fd=listing).st_size)
print(os.read(os.open(str(fd), os.O_RDONLY, dir_fd=listing), 9))
print(show(os.readlink("/proc/self/cwd")), os.stat("/proc/self/cwd/f").st_size, sorted(os.listdir("/proc/self/cwd/")), os.stat("/proc/self/cwd/d/../f").st_size)
os.chdir("d"); print(show(os.readlink("/proc/self/cwd")), os.listdir("/proc/self/cwd")); os.chdir("..")
gone = os.open("gone", os.O_CREAT | os.O_RDWR); os.unlink("gone")
print(os.readlink(f"/proc/self/fd/{gone}").endswith(" (deleted)"), os.path.dirname(show(os.readlink(f"/proc/self/fd/{gone}"))))
unnamed = os.open(".", os.O_TMPFILE | os.O_RDWR)
print(os.readlink(f"/proc/self/fd/{unnamed}").endswith(" (deleted)"))
for name, flags in f"/proc/self/fd/{fd}/", os.O_RDONLY), (f"/proc/self/fd/{fd}/x", os.O_RDONLY), (f"/proc/self/fd/{fd}", os.O_NOFOLLOW):
    try: os.open(name, flags)
    except OSError as e: print(e.strerror)'

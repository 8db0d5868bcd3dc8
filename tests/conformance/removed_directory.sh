# A working directory that was removed: . lists nothing and takes nothing, .. leads to where it was.
# ways: short both patched kernel host fuse
last() { sed 's,.*/,,'; }
mkdir d && cd d && rmdir ../d
ls && ls . && echo "empty"
ls -a .. && stat -c '%h %F' .
for command in 'touch x' 'mkdir y' 'cat .' 'ln -s a b' 'cd -P .' '/bin/pwd'; do
    (eval "$command") >/dev/null 2>&1 && echo "$command: done" || echo "$command: fails"
done
python3 -c 'import os
def told(name, call):
    try: call(); print(name, "ok")
    except OSError as e: print(name, e.strerror)
for name in ".", "..", "../d", "../../w":
    told("open " + name, lambda: os.close(os.open(name, os.O_RDONLY | os.O_DIRECTORY)))
    told("stat " + name, lambda: os.stat(name))
told("chmod", lambda: os.chmod(".", 0o700))
told("xattr", lambda: os.setxattr(".", b"user.x", b"y"))
told("make", lambda: os.close(os.open("../made", os.O_CREAT | os.O_WRONLY)))
told("rename", lambda: os.rename("../made", "../moved"))
told("chdir", lambda: os.chdir(".."))
print(os.path.basename(os.getcwd()))'
cd .. && pwd -P | last
mkdir g && cd g && mv ../g ../h && pwd -P | last && rmdir ../h && mkdir ../g && ls -a .. && cd .. && pwd -P | last

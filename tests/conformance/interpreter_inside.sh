# A script on the kernel's side whose interpreter lies in the mount, started in all the ways there are to start a program.
# ways: short both patched host
outside=$(mktemp -d -p /var/tmp)
cp /bin/sh ./shell
printf '#!%s/shell -e\necho "$1 by ${0##*/}"\n' "$PWD" >"$outside/greet"
printf '#!%s/none\n' "$PWD" >"$outside/none"
chmod 755 "$outside"/*
"$outside/greet" shell
(cd "$outside" && ./greet relative)
env PATH="$outside:$PATH" greet env
cat >start.py <<P
import os, subprocess, sys
where = sys.argv[1]
path = dict(os.environ, PATH=where + ":" + os.environ["PATH"])
sys.stdout.flush()
subprocess.run([where + "/greet", "subprocess"])
subprocess.run([where + "/greet", "with a file"], stdin=open("start.py"))
os.waitpid(os.posix_spawn(where + "/greet", ["greet", "spawn"], os.environ), 0)
os.environ.update(path)
os.waitpid(os.posix_spawnp("greet", ["greet", "spawnp"], os.environ), 0)
keep = open("start.py")
os.waitpid(os.posix_spawnp("greet", ["greet", "spawnp with a file"], os.environ), 0)
for missing in "none", "nothing":
    for run in lambda at: os.posix_spawn(at, [at], os.environ), lambda at: subprocess.run([at]):
        try: run(where + "/" + missing)
        except OSError as error: print(missing, error.strerror)
os.execv(where + "/greet", ["greet", "exec"])
P
python3 start.py "$outside"
rm -r "$outside" shell

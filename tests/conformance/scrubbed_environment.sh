#!/bin/bash
# ways: short both patched
# needs: python3 perl setsid
# A program that is started with an environment of its own sees that and no more, and so do its children, which see the files
# all the same; one that is given ours keeps it.
echo text >f
env -i env
env -i A=1 /usr/bin/env
env -i /bin/cat f
env -i /bin/sh -c 'cat f; /usr/bin/env | grep -c "LD_PRELOAD\|BYPATH"; exec /bin/cat f'
env -i A=1 python3 -c 'import os, subprocess
print({k for k in os.environ if k.startswith(("LD_", "BYPATH"))})
subprocess.run(["/bin/cat", "f"], env={})
os.system("cat f")
print(subprocess.run(["/usr/bin/env"], env={"B": "2"}, capture_output=True).stdout)
os.execve("/bin/cat", ["cat", "f"], {})'
env -i /usr/bin/perl -e 'print join(",", grep /LD_|BYPATH/, keys %ENV), "\n"; system("/bin/cat", "f"); open F, "<", "f"; print <F>'
env -i /usr/bin/setsid -w /bin/cat f
env -i /bin/bash -c 'env -i /bin/cat f; LD_PRELOAD= cat f; compgen -v | grep -c "^LD_\|^BYPATH"'
# What a program is given it has.
env -i LD_PRELOAD=/nothing.so BYPATH_X=1 /usr/bin/env 2>/dev/null | grep -c '^BYPATH_X'

#!/bin/bash
# ways: short both patched
# needs: cc python3
# A program that is started by the loader's name, under whatever name and from wherever, sees what others see (bazel, nix, guix,
# AppImage start theirs so).
loader=$(ls /lib64/ld-linux-x86-64.so.2 /lib/ld-linux-aarch64.so.1 2>/dev/null | head -1)
libraries=$(dirname "$(ldd /bin/cat | awk '/libc\.so/ {print $3}')")
echo text >f
cp "$loader" mine
"$loader" /bin/cat f
./mine /bin/cat f
./mine --library-path "$libraries" /bin/cat f
./mine /bin/cat <f
./mine --library-path "$libraries" /bin/sh -c 'cat f; echo $?; echo more >>f'
cat f
python3 -c 'import subprocess; print(subprocess.run(["./mine", "/bin/cat", "f"], capture_output=True))'
rm -f mine

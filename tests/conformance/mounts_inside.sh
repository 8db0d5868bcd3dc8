# What the kernel mounts inside the mount (a tmpfs, a directory or a file bound) is there for all programs.
# ways: both kernel
long=$(printf '%060d' 1)
mkdir -p t/below b o/x "$long" p
echo below >t/f
echo file >file
echo covered >cover
touch b/in_b
other() { if [ "$(stat -c %d "$1")" = "$(stat -c %d .)" ]; then echo "$1: same"; else echo "$1: other"; fi; }
mount -t tmpfs t t && other t && ls t
mount --bind b o/x && ls o/x && echo through >o/x/new && cat b/new
mount --bind file cover && cat cover && echo more >>cover && cat file
mount -t tmpfs t "$long" && other "$long" && echo long >"$long/g" && cat "$long/g"
mkdir t/d && echo new >t/d/f
(cd t/d && cat f ../../file && ls ../../b && pwd -P | sed 's/.*\///')
ln -s t/d link && cat link/f && (cd link && ls ../..)
for command in 'rmdir t' 'rm cover' 'mv t t2' 'mv cover c2' 'mv t/d/f moved' 'ln t/d hard' 'ln file t/hard' 'mkdir t' 'touch t/touched'; do
    $command >said 2>&1
    echo "$command: $? $(sed 's/.*: //' said)"
done
rm said
find . -xdev | sort
du -x --inodes . | sort -k2
python3 -c '
import os
at = os.open("t", os.O_RDONLY)
print(sorted(os.listdir(at)), sorted(os.listdir(os.open("..", os.O_RDONLY, dir_fd=at))))
try: os.rename("moved", "t/moved")
except OSError as e: print(e.errno)'
rm -rf --one-file-system t 2>/dev/null
ls t
unshare -m --propagation private sh -c 'mount -t tmpfs t p; touch p/hidden; ls p'
ls p
umount "$PWD/cover" "$PWD/t" "$PWD/o/x" "$PWD/$long"
cat cover t/f && ls t o/x "$long"
rm -r t cover

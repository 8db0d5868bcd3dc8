#!/bin/bash
# own
# needs: sshfs
# seconds: 120
# A name of which no more can be read than that it is there fails alone behind a cache, as it does through the kernel: sshfs
# tells no texts of absolute symlinks, a directory that may be read and not searched tells nothing of its names. Method: the
# same by the kernel, or without a cache; a file made beside is written below.
. "$(dirname "$0")/own.sh"
low=$PWD/low at=$PWD/at image=$PWD/c.img
server=$(ls /usr/lib/openssh/sftp-server /usr/libexec/openssh/sftp-server 2>/dev/null | head -1)
[ -n "$server" ] || { echo 'skip: no sftp-server' && exit 0; }
printf '#!/bin/sh\nexec %s\n' "$server" >ssh && chmod +x ssh
mkdir -p low/d at && echo text >low/f && ln -s /etc/passwd low/absolute && ln -s /nowhere low/d/also && echo deep >low/d/g && ln -s f low/relative
run() { # OPTIONS COMMAND…
    local options=$1
    shift
    timeout 60 "$bypath" run --no-fuse --mount "fuse:sshfs -f -o ssh_command=$work/ssh,transform_symlinks here:$low @:$at$options" -- "$@"
}
look='cd "$1"
find . -printf "%P %y %m %n\n" | sort; ls -R | sort; ls -l absolute 2>&1 | cut -c1-10; readlink relative d/also absolute; readlink -v absolute d/also 2>&1; cat absolute relative d/g 2>&1'
run '' bash -c "$look" bash "$at" >wanted 2>&1
grep -q 'absolute: Operation not permitted' wanted || { echo "skip: sshfs tells these texts: that it does not is NOT tested" && exit 0; }
run ",cache=$image:64M" bash -c "$look" bash "$at" >got 2>&1
cmp -s wanted got || { echo first && diff wanted got && failed=1; }
run ",cache=$image:64M" bash -c "$look" bash "$at" >got 2>&1
cmp -s wanted got || { echo warm && diff wanted got && failed=1; }
run ",cache=$image:64M,sync=image" bash -c 'cd "$1" && echo new >made && mv relative d/moved && rm -f d/also && mv absolute d/absolute && ls d' bash "$at" >got 2>&1
same 'changes beside' "$(grep -v ^warning: got; cat low/made; readlink low/d/moved low/d/absolute; ls low)" $'absolute\ng\nmoved\nnew\nf\n/etc/passwd\nd\nf\nmade'
"$bypath" check "$image" >/dev/null || { echo 'check' && failed=1; }

# Read, and not searched: the kernel names them, with their types.
mkdir -p closed/in && echo x >closed/in/file && mkdir closed/in/dir && chmod 744 closed/in && chmod 755 . closed && mkdir -m 777 theirs
look='cd "$1" && ls -1 --color=never in 2>&1; stat in/file 2>&1; python3 -c "
import os
for entry in sorted(os.scandir(\"in\"), key=lambda entry: entry.name): print(entry.name, entry.is_dir(follow_symlinks=False))"'
user bash -c "$look" bash "$PWD/closed" >wanted 2>&1
user timeout 60 "$bypath" run --no-fuse --mount "host:$PWD/closed:$PWD/closed,cache=$PWD/theirs/c.img:32M,ro" -- bash -c "$look" bash "$PWD/closed" >got 2>err
cmp -s wanted got || { echo 'not searched' && diff wanted got && cat err && failed=1; }
chmod 755 closed/in
user timeout 60 "$bypath" run --no-fuse --mount "host:$PWD/closed:$PWD/closed,cache=$PWD/theirs/c.img:32M,ro" -- cat "$PWD/closed/in/file" >got 2>err
same 'searched again' "$(cat got err)" x
exit $failed

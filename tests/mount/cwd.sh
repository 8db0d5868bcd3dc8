# The working directory of a program on the short way is the kernel's too, beside a mount: whoever
# looks at /proc, and what passes the library by, finds the same directory.
served || exit 1
mkdir -p "$mnt/d/e" "$work/outside"
session() { (cd / && "$bypath" run --mount "$image:$mnt" -- sh -c "$1" 2>&1); }
where='readlink /proc/$$/cwd'
same 'entered by a path' "$(session "cd $mnt/d; $where; cd e; $where; cd ../..; $where")" "$mnt/d"$'\n'"$mnt/d/e"$'\n'"$mnt"
same 'and left' "$(session "cd $mnt/d; cd $work/outside; $where; cd -; $where")" "$work/outside"$'\n'"$mnt/d"$'\n'"$mnt/d"
same 'kept over exec' "$(session "cd $mnt/d; exec sh -c '$where; cd e; $where'")" "$mnt/d"$'\n'"$mnt/d/e"
same 'one that was removed' "$(session "mkdir $mnt/g; cd $mnt/g; rmdir ../g; ls; echo x >f; cd ..; pwd -P; $where" | sed 's/.*: //')" \
    $'Directory nonexistent\n'"$mnt"$'\n'"$mnt"
same 'not where nothing is mounted' "$("$bypath" mkfs "$work/two" >/dev/null; mkdir -p "$work/there"
    cd / && "$bypath" run --no-fuse --mount "$work/two:$work/there" -- sh -c "mkdir $work/there/d; cd $work/there/d; $where | grep -c deleted; pwd" 2>&1)" $'1\n'"$work/there/d"
# The server dies; the program goes on, and whoever looks finds a directory without anything.
same 'its server dies' "$(session "cd $mnt/d; kill -9 $server; while kill -0 $server 2>/dev/null; do sleep 0.01; done; echo text >f; cd e; pwd; cat ../f; $where | grep -c deleted")" \
    "$mnt/d/e"$'\ntext\n1'
"$bypath" umount "$mnt"
wait $server 2>/dev/null || :

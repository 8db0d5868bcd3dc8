# Programs that the library can't be loaded into, started by one that it is loaded into: what they inherit is the kernel's.
if ! ${CC:-cc} -static -O1 -o "$work/static" "$here/static.c" 2>"$work/said"; then
    echo "skip static: no static C library here"
    exit 0
fi
both() { "$bypath" run --mount "$image:$mnt" -- sh -c "$1"; }
same 'input from a file in the image' "$(both "echo text >$mnt/f; $work/static cat <$mnt/f")" text
same 'output into it, at its end' "$(both "$work/static say >$mnt/g; $work/static say >>$mnt/g; cat $mnt/g")" $'one\ntwo\none\ntwo'
same 'the offset goes along' "$(both "exec 5<$mnt/g; read line <&5; $work/static cat <&5")" $'two\none\ntwo'
same 'one position: what it writes, and what its parent writes then' "$(both "(echo zero; $work/static say; echo three; $work/static say) >$mnt/s; cat $mnt/s")" $'zero\none\ntwo\nthree\none\ntwo'
same 'one position: what it has read, its parent does not read again' "$(both "($work/static cat; read line; echo \"rest \$line\") <$mnt/f")" $'text\nrest '
same 'one position, in an unlinked file' "$(both "exec 5<>$mnt/u; rm $mnt/u; $work/static say >&5; echo end >&5; cat /dev/fd/5")" $'one\ntwo\nend'
same 'a file that was renamed' "$(both "exec 5<$mnt/f; mv $mnt/f $mnt/h; $work/static cat <&5")" text
same 'a file that was removed' "$(both "exec 5<$mnt/h; rm $mnt/h; $work/static cat <&5")" text
same 'the working directory' "$(both "mkdir $mnt/d; cd $mnt/d; $work/static here; ls")" "$mnt/d"$'\nmade'
same 'a relative name' "$(both "cd $mnt/d; echo inside >n; $work/static rest n")" inside
same 'an exec that fails takes everything back' "$(both "cp $work/static $mnt/bad; cd $mnt; head -c 100 $work/static >$work/bad; chmod +x $work/bad
    exec 5<g; $work/bad <&5 2>/dev/null; cat <&5 | head -n 1; pwd")" $'one\n'"$mnt"
if out=$(short sh -c "$work/static cat <$mnt/g" 2>&1); then
    same "without the mount, where the kernel hands its calls back" "$out" $'one\ntwo\none\ntwo'
else
    case $out in *"is not run"*) ok "without the mount it is refused" ;; *) fail "without the mount it is refused: $out" ;; esac
fi

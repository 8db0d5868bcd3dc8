# An ordinary user who is root of a user namespace has a right over his own files, and no other one.
# ways: short both patched kernel
# mode: 666
# needs: unshare setpriv
umask 022
chmod 755 .
echo y >of-root && echo z >mixed && chown 0:1000 mixed && chmod 640 mixed
mkdir own && chown 1000:1000 own && echo o >own/f && chown 1000:1000 own/f && echo p >own/roots
setpriv --reuid 1000 --regid 1000 --clear-groups unshare --user -r bash -c '
    try() { "$@" 2>/dev/null; echo "$* $?"; }
    stat -c "%n %u %g" own own/f own/roots of-root; chmod 0 own/f; cat own/f; echo q >own/g; stat -c "%u" own/g
    try bash -c "echo w >>own/roots"; try chown 0 own/roots; try rm -f own/roots; try touch outside; try cat mixed'
stat -c '%n %u %g %a' own/f own/g

#!/bin/bash
# The kernel's objects behind FIFOs, sockets and devices go with the last name, whichever process removes it: by unlink, by rename
# over it, or by a process that never opened it. Removing what was never opened makes no private directory.
# own
# needs: python3
set -u
. "$(dirname "$0")/own.sh"
an_image 64M
mkdir -m 700 private
export XDG_RUNTIME_DIR=$work/private
objects() { find private -mindepth 2 | wc -l; }
in_session sh -c "mkfifo $work/m/f && rm $work/m/f && touch $work/m/x && mkfifo $work/m/f && mv $work/m/x $work/m/f && rm $work/m/f"
same 'private directories after nothing was opened' "$(find private -mindepth 1 | wc -l)" 0
in_session sh -c "cd $work/m; for i in 1 2 3 4 5; do mkfifo f\$i; (echo a >f\$i &); cat f\$i >/dev/null; done"
same 'objects while there are names' "$(find private -type p | wc -l)" 5
in_session sh -c "cd $work/m; touch new; mv new f1; ln f2 g2; rm f2"
same 'after rename over one, and unlink of one of two names' "$(find private -type p | wc -l)" 4
in_session sh -c "cd $work/m; rm -r f* g2"
same 'after all are removed' "$(objects)" 0
in_session python3 -c "
import socket
s = socket.socket(socket.AF_UNIX); s.bind('$work/m/s')"
same 'a bound socket' "$(find private -type s | wc -l)" 1
in_session rm "$work/m/s"
same 'after the socket is removed' "$(objects)" 0
exit ${failed:-0}

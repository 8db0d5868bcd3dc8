#!/bin/bash
# needs: inotifywait
# way: mount
# Watches are the kernel's: what programs do through the kernel mount is told.
mkdir d; inotifywait -q -m -r --format '%e %f' -o log d 2>/dev/null & pid=$!
for _ in $(seq 200); do touch d/probe; sleep 0.01; grep -q probe log 2>/dev/null && break; done; : >log
echo x >d/a; mv d/a d/b; chmod 600 d/b; mkdir d/sub; rm d/b; sleep 0.2; kill $pid; wait $pid 2>/dev/null
grep -E ' (a|b|sub)$' log | sort | uniq -c; rm log; (sleep 0.2; echo y >d/file) & inotifywait -q -e create -t 5 --format '%e %f' d; wait; inotifywait -q -t 1 none 2>&1 | head -1

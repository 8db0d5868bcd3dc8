#!/bin/bash
# needs: inotifywait
# A program that watches a tree is told of what other programs do: by mirrors behind the library, by the kernel through
# the kernel mount. What the watcher itself looks at is left out.
mkdir d
inotifywait -q -m -r -e create,modify,close_write,attrib,move,delete --format '%e %f' -o log d 2>/dev/null &
pid=$!
for _ in $(seq 2000); do
    touch d/probe
    sleep 0.01
    grep -q probe log 2>/dev/null && break
done
: >log
echo x >d/a
mv d/a d/b
chmod 600 d/b
mkdir d/sub
rm d/b
for _ in $(seq 2000); do
    grep -q "DELETE b" log && break
    sleep 0.01
done
kill $pid
wait $pid 2>/dev/null
grep -E ' (a|b|sub)$' log | sort | uniq -c
rm log
inotifywait -e create -t 60 --format '%e %f' d >got 2>said &
until grep -q established said 2>/dev/null; do sleep 0.01; done
echo y >d/file
wait
cat got
rm got said
inotifywait -q -t 1 none 2>&1 | head -1

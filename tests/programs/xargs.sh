#!/bin/bash
# needs: find xargs
# Trees walked while children make, change and remove; several at a time.
seq 24 | xargs -P4 -I{} sh -c 'mkdir -p d{}/e; echo {} >d{}/f; echo x >d{}/e/g'
find . -type f | wc -l
find . -name f -exec cat {} + | sort -n | cksum
find . -name g -print0 | xargs -0 -P4 -n5 rm
find . -name g | wc -l
find . -type d -empty -path '*/e' -delete -print | wc -l
find . -name f -exec sh -c 'for p; do mv "$p" "$p.moved"; done' sh {} +
find . -name 'f.moved' | wc -l
find . -name '*.moved' -execdir sh -c 'cat "$1" >>../all' sh {} \;
sort -n all | tail -1
find d1 d2 -printf '%y %d %P\n' | sort
find . -type f -name '*.moved' -print0 | sort -z | xargs -0 -n 20 -P3 sh -c 'cat "$@" | wc -l' sh | sort
find . -newer d1 -name nothing
find d3 -exec false \; -o -print | sort
seq 3 | xargs -n1 sh -c 'exit $(($0 - 1))'
echo "exit $?"
echo none | xargs cat 2>/dev/null
echo "exit $?"
seq 40 | xargs -P4 -n1 sh -c 'echo line $0 >>log'
sort log | cksum
wc -l <log
rm log all

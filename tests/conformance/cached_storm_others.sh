#!/bin/bash
# own
# seconds: 300
# cached_storm.py beside programs that write below all the time and move directories, some kills of it: nothing of either side is
# lost, in sessions with a journal too (on ext4, where there are loop devices).
exec env OTHERS=1 JOBS=0 KILLS="${KILLS:-8}" FS="${FS:-ext4}" python3 "$tests/conformance/cached_storm.py"

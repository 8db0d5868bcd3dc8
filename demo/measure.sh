#!/bin/bash
# Runs one command line and notes how long it took; the same on both sides.
#
#   measure.sh DIRECTORY OUTPUT TIMES COMMAND-LINE
#
# TIMES gets: wall seconds, user seconds, system seconds, exit code. Whatever loads
# this shell itself is not counted; every program that the line starts is.
cd "$1" || exit 1
TIMEFORMAT='%3U %3S'
begun=$EPOCHREALTIME
{ time eval "$4" >"$2" 2>"$2.err"; code=$?; } 2>"$3.cpu"
ended=$EPOCHREALTIME
read -r user system <"$3.cpu"
printf '%s %s %s %s\n' "$(((${ended/./} - ${begun/./})))" "$user" "$system" "$code" >"$3"
rm -f "$3.cpu"
exit "$code"

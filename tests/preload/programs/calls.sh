#!/bin/sh
# Python's os module, call by call.
command -v python3 >/dev/null || {
    echo skip: no python3
    exit
}
python3 "$(dirname "$0")/../calls.py" "$1"

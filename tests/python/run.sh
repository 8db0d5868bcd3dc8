#!/bin/bash
# The Python module, from the source tree:
#
#   run.sh [FILE…]        files of tests beside this one, without .py; default: all
#   BYPATH=target/release/bypath, with libbypath.so beside it; PYTHON=python3
#   TOOLS=DIR             where fsspec and numpy may be installed, for the tests that use them
#
# What the machine lacks is left out, loudly.
set -u
export LC_ALL=C.UTF-8
here=$(cd "$(dirname "$0")" && pwd)
tests=$(dirname "$here")
. "$tests/common.sh"
begin python y
python=${PYTHON:-python3}
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 8))' 2>/dev/null; then
    echo 'skip python: no Python of 3.8 or newer: LEFT OUT, not passed'
    exit 0
fi
if [ ! -e "${bypath%/*}/libbypath.so" ]; then
    echo "FAIL python: ${bypath%/*}/libbypath.so is not there; run make first"
    exit 2
fi
export BYPATH=$bypath SHM=$work PYTHONDONTWRITEBYTECODE=1
run() { # PYTHON FILE
    (cd "$here" && timeout 300 "$1" report.py "$2") || failed=1
}

# fsspec finds file systems by what is installed: so that ours is, as the wheel has it.
spec() {
    local venv
    venv=$(realpath -m "${TOOLS:-$work}")/python
    if ! "$venv/bin/python" -c 'import fsspec, numpy' 2>/dev/null; then
        "$python" -m venv "$venv" && timeout 120 "$venv/bin/pip" install -q fsspec numpy
    fi >"$work/pip" 2>&1
    if ! "$venv/bin/python" -c 'import fsspec' 2>/dev/null; then
        echo 'skip python: fsspec cannot be installed: LEFT OUT, not passed'
        return
    fi
    mkdir -p "$work/site/bypath-0.dist-info"
    cp "$tests/../python/entry_points.txt" "$work/site/bypath-0.dist-info/"
    printf 'Metadata-Version: 2.1\nName: bypath\nVersion: 0\n' >"$work/site/bypath-0.dist-info/METADATA"
    PYTHONPATH=$work/site run "$venv/bin/python" fs_spec
}

# The example gives the same bytes by every way, in small.
example() {
    if timeout 200 "$python" "$tests/../examples/loader.py" --files 600 --workers 2 --directory "$work" >"$work/out" 2>&1 && grep -q '^bypath module ' "$work/out"; then
        verdict 'python: examples/loader.py' 0
    else
        cat "$work/out"
        verdict 'python: examples/loader.py' 1
    fi
}

[ $# -gt 0 ] || set -- same own spec example
for name; do
    case $name in
    spec | example) "$name" ;;
    *) run "$python" "$name" ;;
    esac
done
[ "$failed" -eq 0 ]

#!/bin/bash
# Puts the figures of a demo run into README.md, between its two marks.
#
#   RESULTS=/tmp/figures make demo && demo/figures.sh /tmp/figures
set -eu
cd "$(dirname "$0")/.."
[ -s "${1:-}" ] || { echo "usage: demo/figures.sh FILE   (what RESULTS= of the demo wrote)" >&2; exit 2; }
processor=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)
{
    echo "| program | tmpfs, s | bypath, s | ratio | target | floor | same results |"
    echo "|---|---|---|---|---|---|---|"
    tail -n +2 "$1" | awk -F '\t' '{ printf "| `%s` | %s | %s | **%s** | %s | %s | %s |\n", $1, $2, $3, $4, $5, $6, $7 }'
    echo
    echo "Best of the measured rounds, on ${processor:-an unknown processor} ($(nproc) processors), Linux $(uname -r | cut -d- -f1), $(date -u +%F)."
} >"$1.md"
awk -v table="$1.md" '
    /<!-- demo -->/ { print; while ((getline line < table) > 0) print line; skip = 1; next }
    /<!-- \/demo -->/ { skip = 0 }
    !skip' README.md >"$1.new"
mv "$1.new" README.md
rm -f "$1.md"

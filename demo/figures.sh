#!/bin/bash
# Puts the figures of a run between their two marks, in README.md and in docs/results.
#
#   RESULTS=/tmp/figures make demo && demo/figures.sh demo /tmp/figures
#   RESULTS=/tmp/figures demo/jobs.sh && demo/figures.sh jobs /tmp/figures
#   target/release/budgets >/tmp/figures && demo/figures.sh budgets /tmp/figures
set -eu
cd "$(dirname "$0")/.."
[ -s "${2:-}" ] || { echo "usage: demo/figures.sh demo|jobs|budgets FILE   (what RESULTS= of the script, or budgets, wrote)" >&2; exit 2; }
kind=$1
table=$(mktemp)
trap 'rm -f "$table"' EXIT
case $kind in
demo)
    processor=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)
    {
        echo "| program | tmpfs, s | bypath, s | ratio | target | floor | same results |"
        echo "|---|---|---|---|---|---|---|"
        tail -n +2 "$2" | awk -F '\t' '{ printf "| `%s` | %s | %s | **%s** | %s | %s | %s |\n", $1, $2, $3, $4, $5, $6, $7 }'
        echo
        echo "Best of the measured rounds, on ${processor:-an unknown processor} ($(nproc) processors), Linux $(uname -r | cut -d- -f1), $(date -u +%F)."
    } >"$table"
    ;;
budgets)
    {
        echo "| call | instructions, budget | lines of code | lines of data |"
        echo "|---|---|---|---|"
        sed -nE 's/^(.{1,34}[^ ]) {2,}([0-9]+) +\/ +([0-9]+) +([0-9]+)( +\/ +([0-9]+))? +([0-9]+)( +\/ +([0-9]+))?.*$/| \1 | \2, \3 | \4 \6 | \7 \9 |/p' "$2" | sed -E 's/([0-9]) ([0-9]+) \|/\1, \2 |/g; s/ +\|/ |/g'
        echo
        echo "$(grep -m1 'within their budget' "$2"). $(date -u +%F)."
    } >"$table"
    ;;
*) cp "$2" "$table" ;;
esac
for page in README.md docs/results/*.md; do
    grep -q "<!-- $kind -->" "$page" || continue
    awk -v table="$table" -v kind="$kind" '
        $0 == "<!-- " kind " -->" { print; while ((getline line < table) > 0) print line; close(table); skip = 1; next }
        $0 == "<!-- /" kind " -->" { skip = 0 }
        !skip' "$page" >"$table.page"
    cat "$table.page" >"$page"
    rm -f "$table.page"
done

#!/bin/bash
# The documents are true where a machine can tell:
#
#   tests/docs/run.sh pages               links lead somewhere, paths exist, every page is in the summary, plain words
#   tests/docs/run.sh commands [BYPATH]   the blocks of docs/guide marked ```sh tested run, in a scratch directory
#
# A block that needs a program says so: ```sh tested needs=cc,bindfs. What the machine lacks is left out, loudly.
set -u
export LC_ALL=C.UTF-8
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root" || exit 2
failed=0
fail() { echo "FAIL docs: $*"; failed=$((failed + 1)); }

# ---- pages ----

pages() { find docs README.md ARCHITECTURE.md HACKING.md crates fuzz tests demo -name '*.md' -not -path '*/target/*' -not -path '*/node_modules/*' | sort; }

# Links between pages, and the headings that they name: FILE TARGET ANCHOR a line.
links() {
    pages | xargs awk '
        /^ *```/ { code = !code; next }
        FNR == 1 { code = 0 }
        code { next }
        { line = $0; gsub(/`[^`]*`/, "", line)
          while (match(line, /\]\([^)]*\)/)) {
              target = substr(line, RSTART + 2, RLENGTH - 3); line = substr(line, RSTART + RLENGTH)
              if (target ~ /^[a-z]+:/) continue
              anchor = ""
              if (i = index(target, "#")) { anchor = substr(target, i + 1); target = substr(target, 1, i - 1) }
              print FILENAME "\t" target "\t" anchor
          } }'
}

# A heading as a link names it: small letters, what is neither letter, figure, space nor hyphen left out.
headings() { # FILE
    awk '/^ *```/ { code = !code } !code && /^#+ / { sub(/^#+ /, ""); print }' "$1" | tr '[:upper:]' '[:lower:]' | sed -e 's/[^a-z0-9 _-]//g' -e 's/ /-/g'
}

check_links() {
    local file target anchor path
    while IFS=$'\t' read -r file target anchor; do
        path=$file
        [ -z "$target" ] || path=$(dirname "$file")/$target
        if [ ! -e "$path" ]; then
            fail "$file: $target is not there"
        elif [ -n "$anchor" ] && [[ $path == *.md ]] && ! headings "$path" | grep -qxF -- "$anchor"; then
            fail "$file: $target has no heading #$anchor"
        fi
    done < <(links)
}

# Paths of this repository that the text names in backquotes, and those of docs/ that anything else names.
check_paths() {
    local file path
    while IFS=: read -r file path; do
        path=${path#\`} path=${path%\`} path=${path%% *}
        case $path in *'*'* | *'<'* | *…* | *'{'* | *'$'*) continue ;; esac
        compgen -G "$path" >/dev/null || fail "$file: $path is not there"
    done < <(grep -rHoE --include='*.md' '`(crates|tests|models|fuzz|demo|docs|xtask|examples)/[^`]*`' docs README.md ARCHITECTURE.md HACKING.md | sort -u)
    while IFS=: read -r file path; do
        path=docs/${path#*docs/} path=${path%.}
        compgen -G "$path*" >/dev/null || fail "$file: $path is not there"
    done < <(grep -rIHoE --exclude-dir=target --exclude-dir=.git '(^|[^/a-zA-Z])docs/[a-z][A-Za-z0-9_/.-]*' Makefile budgets.toml crates demo fuzz models tests profile xtask 2>/dev/null | grep -v '^tests/docs/run.sh' | sort -u)
    while IFS=: read -r file path; do
        path=${path##*[ /]}
        compgen -G "docs/decisions/$path-*.md" >/dev/null || fail "$file: there is no decision $path"
    done < <(grep -rIHoE --exclude-dir=target --exclude-dir=.git '\bdecisions?[ /]0[0-9]{3}\b' Makefile budgets.toml README.md ARCHITECTURE.md HACKING.md docs crates demo fuzz models tests profile xtask 2>/dev/null | sort -u)
}

# Names of functions and constants that a page says are in a file: `NAME` in `crates/…`, or `NAME` and `NAME` in it.
check_symbols() {
    local file names path name
    while IFS=: read -r file names; do
        path=${names##* in \`} path=${path%\`}
        for name in $(grep -oE '`[A-Za-z_]+`' <<<"${names% in *}" | tr -d '`'); do
            grep -qE "(fn|const|struct|enum|static|pub) $name\b" "$path" || fail "$file: $path has no $name"
        done
    done < <(grep -rHoE --include='*.md' '(`[A-Za-z_]+` and )?`[A-Za-z_]+` in `crates/[^`]*\.rs`' docs ARCHITECTURE.md | sort -u)
}

check_summary() {
    local page count
    while read -r page; do
        grep -qF "(${page#docs/})" docs/SUMMARY.md || fail "$page is not in docs/SUMMARY.md"
    done < <(find docs -name '*.md' ! -name SUMMARY.md | sort)
    while read -r page; do
        grep -qF "($(basename "$page"))" docs/decisions/README.md || fail "$page is not in docs/decisions/README.md"
    done < <(find docs/decisions -name '0*.md' | sort)
    count=$(find docs/decisions -name '0*.md' | wc -l)
    [ "$count" -le 35 ] || fail "$count decisions; merge some: at most 35"
}

# Documents say what is: no dates and commits but in the results; and the words of the glossary.
check_words() {
    local line text
    local -a others
    mapfile -t others < <(find docs -name '*.md' ! -path 'docs/results/*')
    others+=(ARCHITECTURE.md HACKING.md)
    while read -r line; do
        fail "a date or commit: $line"
    done < <(grep -HnoE '\b20[0-9]{2}-[0-9]{2}-[0-9]{2}\b|\bcommit [0-9a-f]{7}\b' "${others[@]}")
    while read -r line; do
        text=$(sed 's/`[^`]*`//g' <<<"$line")
        grep -qiE '\b(glances?|ledger|relays?|courtesy|symbol way|patched way|cached way|mended)\b' <<<"${text#*:*:}" && fail "a word that the glossary does not have: $line"
    done < <(grep -HniE '\b(glances?|ledger|relays?|courtesy|symbol way|patched way|cached way|mended)\b' "${others[@]}" README.md)
}

# Phrases that no document and no text of the command line has: they were misread (see also the glossary of ARCHITECTURE.md).
# The subject of a sentence is a noun, and a process is "it".
phrases='\b[Hh]e\b|\bhi[ms]\b|(there|it|image|cache) for the kernel (too|as well)|only so\b|short way|way in:|shall be called|lands outside|you know that it does|no name is free|what lies below|what is not here|today.s format|of anybody who|tells all\b|[Ww]ho has something\b|has been told|by hand of'
check_phrases() {
    local line
    while read -r line; do
        fail "a phrase to be written otherwise: $line"
    done < <(grep -rHnoE --include='*.md' --exclude-dir=results ".{0,40}($phrases).{0,20}" docs README.md ARCHITECTURE.md HACKING.md
        grep -rHnoE "(///|\"|^)[^/]*($phrases).{0,20}" crates/cli/src/args crates/cli/src/doctor crates/cli/src/mounts/spec crates/preload/src/process/not_loaded.rs)
}

# ---- commands ----

has() { # NEED
    case $1 in
    fuse3) [ -e /usr/include/fuse3/fuse.h ] ;;
    *) command -v "$1" >/dev/null ;;
    esac
}

# The tested blocks of a page as one script; those whose needs are not met say so instead.
script_of() { # PAGE
    awk '
        /^```sh tested/ { inside = 1; needs = ""; if (match($0, /needs=[^ ]*/)) needs = substr($0, RSTART + 6, RLENGTH - 6)
                          print "if needs " (needs ? needs : "-") " " FNR "; then"; next }
        inside && /^```/ { inside = 0; print "fi"; next }
        inside { print }' "$1"
}

run_page() { # PAGE
    local page=$1 scratch home code script
    scratch=$(mktemp -d "${SHM:-/dev/shm}/bypath-docs.XXXXXX") || exit 2
    # A home directory lies on a disk.
    home=$(mktemp -d /var/tmp/bypath-docs.XXXXXX) || exit 2
    mkdir "$scratch/work"
    # What the pages put into /dev/shm lies in the scratch directory here.
    script=$(script_of "$page" | sed "s|/dev/shm/|$scratch/|g")
    (
        cd "$scratch/work" || exit 2
        export HOME=$home BYPATH_SEGMENT_DIR=$scratch BYPATH_SOURCE=$root PATH=$bypath:$PATH
        needs() { # LIST LINE
            local need
            [ "$1" != - ] || return 0
            for need in ${1//,/ }; do
                has "$need" || { echo "skip $page, line $2: $need is not there: LEFT OUT, not passed"; return 1; }
            done
        }
        set -eu
        eval "$script"
    ) >"$scratch/log" 2>&1
    code=$?
    grep '^skip ' "$scratch/log"
    if [ "$code" -ne 0 ]; then
        cat "$scratch/log"
        fail "$page: its commands end with $code"
    else
        echo "ok   docs: the commands of $page"
    fi
    rm -rf "$scratch" "$home"
}

case ${1:-pages} in
pages)
    check_links
    check_paths
    check_symbols
    check_summary
    check_words
    check_phrases
    [ "$failed" -ne 0 ] || echo "ok   docs: links, paths, summary and words of $(pages | wc -l) pages"
    ;;
commands)
    bypath=$(dirname "$(realpath "${2:-target/release/bypath}")")
    [ -x "$bypath/bypath" ] || { echo "docs: $bypath/bypath is not there; run make first" >&2; exit 2; }
    for page in docs/guide/*.md; do
        grep -q '^```sh tested' "$page" && run_page "$page"
    done
    ;;
*)
    echo "usage: tests/docs/run.sh pages | commands [BYPATH]" >&2
    exit 2
    ;;
esac
[ "$failed" -eq 0 ]

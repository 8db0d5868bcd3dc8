# What the newcomer does, in the tree. Programs run in a fresh directory of tmpfs, then in a session.
mkdir /dev/shm/home && cd /dev/shm/home || exit 2
export HOME=$PWD
failed=0
verdict() { # NAME CODE
    if [ "$2" -eq 0 ]; then echo "ok   newcomer: $1"; else
        echo "FAIL newcomer: $1"
        failed=1
    fi
}

begun=$(date +%s)
python3 -m venv v && v/bin/pip install -q --no-index /given/bypath-*.whl
verdict 'the wheel is installed' $?
PATH=$HOME/v/bin:$PATH
export PATH
test "$(bypath run --mount new:1G:/bp -- sh -c 'cd /bp && mkdir d && echo works >d/f && cat d/f && stat -f -c %T . >/dev/null')" = works
verdict "a first session, $(($(date +%s) - begun)) s after the wheel came" $?
for wheel in /given/uv-*manylinux*.whl; do [ ! -e "$wheel" ] || v/bin/pip install -q --no-index "$wheel"; done

# Runs a script in a directory, then lists what it left.
cat >side.sh <<'END'
dir=$1 script=$2 ignore=$(sed -n 's/^# ignore: *//p' "$2" | head -1)
mkdir -p "$dir/tmp" && cd "$dir" || exit 99
export HOME=$dir TMPDIR=$dir/tmp PYTHONDONTWRITEBYTECODE=1 PYTHONHASHSEED=0
timeout -k 5 300 $(sed -n '1s/^#!//p' "$script") "$script" </dev/null
echo "exit $?"
cd "$dir" || exit 99
find . -printf '%P %y %m %n %U %G %l' \( -type f -printf ' %s\n' -o -printf '\n' \) | sort
find . -type f | grep -Ev "${ignore:-^$}" | sort | while IFS= read -r file; do cksum "$file"; done
END

# As long as the other, since files hold paths.
mkdir -p /dev/shm/k
for script in /given/programs/*.sh; do
    name=$(basename "$script" .sh)
    case " ${PROGRAMS:-$name} " in *" $name "*) ;; *) continue ;; esac
    missing=
    for needed in $(sed -n 's/^# needs: *//p' "$script"); do
        [ -e "$needed" ] || command -v "$needed" >/dev/null || missing="$missing $needed"
    done
    if [ -n "$missing" ]; then
        echo "skip newcomer: $name: without$missing: NOT tested"
        continue
    fi
    begun=$(date +%s%N)
    sh side.sh /dev/shm/k/test "$script" >k.out 2>&1
    between=$(date +%s%N)
    bypath run --mount new:1G:/dev/shm/b -- sh side.sh /dev/shm/b/test "$script" >b.out 2>&1
    ended=$(date +%s%N)
    sed -i 's,/dev/shm/k/,/dev/shm/b/,g' k.out
    cmp -s k.out b.out
    verdict "$name ($(((between - begun) / 1000000)) ms on tmpfs, $(((ended - between) / 1000000)) ms)" $?
    cmp -s k.out b.out || diff k.out b.out | head -20
    grep -q '^exit 0' k.out || { echo "     on tmpfs too it has failed:"; grep -v '^\.' k.out | head -5; failed=1; }
    [ -z "${SHOW:-}" ] || cat b.out
    rm -rf /dev/shm/k/test
done
leftover=$(ls /dev/shm | grep -v '^home$\|^k$')
test -z "$leftover"
verdict "nothing is left behind $leftover" $?
exit $failed

#!/bin/bash
# own
# needs: python3
# seconds: 120
# Programs that ask for clones by themselves get them: what they say is what they say of copies, and the image says by how much less
# it is. Those that are there: uv (--link-mode clone), pnpm (--package-import-method clone), node (COPYFILE_FICLONE_FORCE); a data
# directory of PostgreSQL, copied by `cp --reflink=always` and by `bypath clone`, on which servers then work side by side.
set -u
. "$(dirname "$0")/own.sh"
failed=0 done=
I=$work/image
PATH=$PATH:$(realpath "$tests/..")/target/tools/uv/bin
"$bypath" mkfs --size 1G image >/dev/null || fail mkfs
mkdir m
as=
in_session() { $as "$bypath" run --no-fuse --mount "$I:$work/m" -- "$@"; }
saved() { $as "$bypath" info --json "$I" | python3 -c 'import json, sys; print(json.load(sys.stdin)["shared"]["saved"])'; }
# more WHAT BYTES COMMAND…: the command succeeds, and so many bytes at least are shared afterwards that were not before.
more() {
    local what=$1 bytes=$2 before after
    shift 2
    before=$(saved)
    "$@" >said 2>&1 || { echo "$what:" && tail -5 said && failed=1; }
    after=$(saved)
    [ $((after - before)) -ge "$bytes" ] || { echo "$what: $((after - before)) bytes are shared, not $bytes" && failed=1; }
    done="$done $what"
}

if command -v uv >/dev/null; then
    cat >uv.sh <<'S'
cd m && export HOME=$PWD/home UV_CACHE_DIR=$PWD/cache UV_NO_PROGRESS=1 UV_PYTHON_DOWNLOADS=never UV_PYTHON=$(command -v python3) TMPDIR=$PWD/home
mkdir -p home wheel && python3 - <<'P' || exit 1
import random, zipfile
rng = random.Random(1)
names = ["tiny/__init__.py"] + [f"tiny/data{i}.bin" for i in range(20)] + ["tiny-1.0.dist-info/" + n for n in ("METADATA", "WHEEL", "RECORD")]
with zipfile.ZipFile("wheel/tiny-1.0-py3-none-any.whl", "w") as z:
    z.writestr(names[0], "value = 42\n")
    for name in names[1:21]:
        z.writestr(name, rng.randbytes(100_000))
    z.writestr(names[21], "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
    z.writestr(names[22], "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    z.writestr(names[23], "".join(name + ",,\n" for name in names))
P
for env in one two three; do
    uv venv -q $env && uv pip install -q --offline --link-mode clone --python $env/bin/python wheel/tiny-1.0-py3-none-any.whl || exit 1
    [ "$($env/bin/python -c 'import tiny; print(tiny.value)')" = 42 ] || exit 1
done
for file in two/lib/python3*/site-packages/tiny/__init__.py; do echo 'value = 43' >"$file" || exit 1; done
[ "$(three/bin/python -c 'import tiny; print(tiny.value)')" = 42 ] && diff -r one/lib/python3*/site-packages/tiny three/lib/python3*/site-packages/tiny -x __pycache__
S
    more uv 5000000 in_session sh uv.sh
fi

if command -v node >/dev/null; then
    cat >copy.js <<'S'
const fs = require('fs')
process.chdir('m')
const data = Buffer.alloc(3000000, 'node')
fs.writeFileSync('from', data)
fs.copyFileSync('from', 'to', fs.constants.COPYFILE_FICLONE_FORCE)
fs.writeSync(fs.openSync('to', 'r+'), 'own', 5000)
if (!fs.readFileSync('from').equals(data) || fs.readFileSync('to').subarray(5000, 5003).toString() !== 'own') process.exit(1)
S
    more node 2900000 in_session node copy.js
fi

if command -v pnpm >/dev/null; then
    cat >pnpm.sh <<'S'
cd m && export HOME=$PWD/home TMPDIR=$PWD/home CI=1 NO_UPDATE_NOTIFIER=1 && mkdir -p home pack/package && cd pack || exit 1
echo '{"name": "tiny", "version": "1.0.0", "main": "index.js"}' >package/package.json
echo 'module.exports = require("fs").readFileSync(__dirname + "/data").length' >package/index.js
head -c 2000000 /dev/urandom >package/data && tar czf ../tiny.tgz package && cd .. || exit 1
for project in p1 p2 p3; do
    mkdir $project && echo '{"name": "x", "version": "1.0.0", "dependencies": {"tiny": "file:../tiny.tgz"}}' >$project/package.json
    (cd $project && pnpm install --offline --store-dir ../store --package-import-method clone --reporter silent && [ "$(node -p 'require("tiny")')" = 2000000 ]) || exit 1
done
echo own >>p2/node_modules/tiny/data && cmp p1/node_modules/tiny/data p3/node_modules/tiny/data
S
    more pnpm 5900000 in_session bash pnpm.sh
fi

# A server does not run as root: image, session and all are that user's.
if [ "$(id -u)" = 0 ]; then as='setpriv --reuid postgres --regid postgres --clear-groups' && chmod 777 .; fi
if command -v initdb >/dev/null && command -v pg_ctl >/dev/null && $as test -x "$bypath"; then
    I=$work/pg.img
    $as "$bypath" mkfs --size 1G "$I" >/dev/null || fail mkfs
    cat >postgres.sh <<'S'
cd m/pg && export HOME=$PWD LC_ALL=C
bin=$(dirname "$(realpath "$(command -v initdb)")")
serve() { "$bin/pg_ctl" -D "$1" -w -t 60 -o "-c listen_addresses='' -c unix_socket_directories=$PWD -c shared_buffers=16MB -p $2" -l "$1.log" "$3" >/dev/null; }
sql() { "$bin/psql" -h "$PWD" -p "$1" -d postgres -qAtc "$2"; }
case $1 in
    make)
        "$bin/initdb" -D golden -N -A trust >/dev/null && serve golden 5501 start &&
            sql 5501 'create table t as select i, md5(i::text) m from generate_series(1, 20000) i; create index on t (m)' && serve golden 5501 stop
        ;;
    copy)
        begun=$(date +%s%N)
        cp -r --reflink=always golden test1 && echo "copied in $((($(date +%s%N) - begun) / 1000000)) ms"
        ;;
    work)
        for i in 1 2; do serve test$i 550$i start || { tail -5 test$i.log && exit 1; }; done
        sql 5501 'update t set i = i + 1' && sql 5502 'delete from t where i > 5' && sql 5501 'insert into t select 0, m from t limit 100'
        [ "$(sql 5501 'select count(*), sum(i) from t')" = '20100|200030000' ] && [ "$(sql 5502 'select count(*), sum(i) from t')" = '5|15' ] || exit 1
        for i in 1 2; do serve test$i 550$i stop || exit 1; done
        serve golden 5503 start && [ "$(sql 5503 'select count(*), sum(i) from t')" = '20000|200010000' ] && serve golden 5503 stop
        ;;
esac
S
    in_session mkdir -m 700 m/pg
    more 'making a data directory' 0 in_session bash postgres.sh make
    more 'PostgreSQL by cp' 15000000 in_session bash postgres.sh copy
    more 'PostgreSQL by bypath clone' 15000000 $as "$bypath" clone -q "$I:/pg/golden" "$I:/pg/test2"
    more 'PostgreSQL, three servers' -2000000000 in_session bash postgres.sh work
fi
for image in image pg.img; do [ ! -e $image ] || "$bypath" check $image >checked || { cat checked && failed=1; }; done
[ -n "$done" ] || echo 'skip: none of the programs is here'
exit $failed

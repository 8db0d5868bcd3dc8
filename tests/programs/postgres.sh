#!/bin/sh
# needs: /usr/lib/postgresql/*/bin/postgres
# as: 65534
# A cluster in the image: loaded, written by four clients, killed and recovered, copied, dumped.
PATH=$(ls -d /usr/lib/postgresql/*/bin | tail -1):$PATH
export PGHOST=$PWD PGDATABASE=postgres PGUSER=me
initdb -D data -U me -A trust --data-checksums >init.log 2>&1 || cat init.log
cat >>data/postgresql.conf <<C
listen_addresses = ''
unix_socket_directories = '$PWD'
shared_buffers = 16MB
min_wal_size = 32MB
max_wal_size = 64MB
autovacuum = off
C
start() {
    for _ in $(seq 100); do
        pg_ctl -w -t 60 -D data -l log start >start.log 2>&1 && return
        sleep 0.1
    done
    echo 'it does not start'
    cat start.log log
}
ask() { psql -X -At -v ON_ERROR_STOP=1 -c "$1"; }
start
pgbench -i -q -s 1 >/dev/null 2>&1
pgbench -c 4 -j 2 -t 100 -n 2>&1 | grep 'actually processed'
ask 'select (select sum(abalance) from pgbench_accounts) = (select sum(delta) from pgbench_history), count(*) from pgbench_history'
ask 'create table big as select g, md5(g::text) as m from generate_series(1, 50000) g; create index on big (m)'
mkdir space && ask "create tablespace other location '$PWD/space'" && ask 'alter table big set tablespace other'

# What was committed is there after the server has died.
ask 'checkpoint; insert into big select g, md5(g::text) from generate_series(50001, 60000) g'
kill -9 "$(head -1 data/postmaster.pid)"
start
grep -c 'database system was not properly shut down' log
ask 'select count(*), max(g) from big'

ask 'delete from big where g % 3 = 0' && ask 'vacuum full big' && ask 'select count(*) from big'
createdb --template=postgres twin 2>&1 || ask 'select datname, pid, state from pg_stat_activity'
PGDATABASE=twin ask 'select count(*), md5(string_agg(m, $$$$ order by g)) from big' && dropdb twin
pg_basebackup -D copy -c fast --tablespace-mapping="$PWD/space=$PWD/space2" 2>&1 && pg_verifybackup copy 2>&1 | sed 's/[0-9.]* *kB//'
pg_dump -t big | grep -v '^.\(un\)*restrict ' >dump.sql
pg_ctl -w -D data stop -m fast >/dev/null
pg_checksums -D data | grep -v 'scanned\|version'
# Its own files hold times and identifiers.
rm -rf data copy space space2 init.log start.log log

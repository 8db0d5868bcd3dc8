#!/bin/bash
# needs: sqlite3
# seconds: 300
# Databases with rollback and write-ahead journals, several connections, recovery of a killed one.
for mode in delete truncate persist wal; do
    db=$mode.db
    sqlite3 $db "pragma journal_mode=$mode; create table t(i integer primary key, v text); begin; with recursive c(x) as (select 1 union all select x+1 from c where x<5000) insert into t select x, hex(x*7919) from c; commit;"
    sqlite3 $db 'select count(*), sum(i), max(v) from t; create index x on t(v); delete from t where i%3=0; vacuum; pragma integrity_check; select count(*) from t;'
    (for i in $(seq 20); do sqlite3 -cmd '.timeout 20000' $db "insert into t(v) values('a$i')"; done) &
    (for i in $(seq 20); do sqlite3 -cmd '.timeout 20000' $db "insert into t(v) values('b$i')"; done) &
    wait
    sqlite3 $db "select count(*) from t where v like 'a%' or v like 'b%'; select count(*) from t;"
    sqlite3 $db 'begin; update t set v=v||v; rollback; pragma integrity_check;'
    sqlite3 $db "select v from t order by v" | cksum
    sqlite3 $db '.backup copy.db'
    sqlite3 copy.db 'select count(*) from t'
    rm copy.db
    ls $mode.*
done
# One that dies in the middle of a transaction: its journal is rolled back by the next.
mkfifo go
(
    (
        exec 3>go
        echo 'pragma cache_size=2; begin immediate; update t set v="x";' >&3
        sleep 0.5
        kill -9 "$(cat pid)"
        exec 3>&-
    ) &
    sqlite3 delete.db <go >died &
    echo $! >pid
    wait
) 2>/dev/null
rm -f pid go died
sqlite3 delete.db 'select count(*) from t where v="x"; pragma integrity_check'
sqlite3 none/x.db 'create table t(x)'
echo "exit $?"
echo garbage >g.db
sqlite3 g.db 'select * from t'
echo "exit $?"
rm -f ./*.db*

#!/bin/sh
# Both journals, several connections, rollback, recovery of a journal.
command -v sqlite3 >/dev/null || {
    echo skip: no sqlite3
    exit
}
for mode in delete wal; do
    sqlite3 db-$mode "pragma journal_mode=$mode; create table t(a integer primary key, b); begin; with recursive c(x) as (select 1 union all select x + 1 from c where x < 5000) insert into t select x, hex(zeroblob(x % 50)) from c; commit; select count(*), sum(length(b)) from t;"
    sqlite3 db-$mode 'begin; delete from t where a > 100; rollback; select count(*) from t; begin; delete from t where a > 1000; commit; vacuum; pragma integrity_check;'
    for i in 1 2 3 4; do sqlite3 -cmd '.timeout 20000' db-$mode "insert into t(b) values('p$i'); update t set b = b || 'x' where a <= 10;" & done
    wait
    sqlite3 db-$mode "select count(*) from t; select length(b) from t where a = 10; select count(*) from t where b like 'p%'; pragma integrity_check;"
    sqlite3 db-$mode .dump | wc -l
    ls db-$mode*
    sqlite3 db-$mode '.backup copy' && sqlite3 copy 'select count(*) from t'
done

#!/bin/bash
# needs: sqlite3
# Four writers and a reader at a time on one database, with each journal; backups while they write.
for mode in delete wal; do
    db=$mode.db
    sqlite3 $db "pragma journal_mode=$mode; create table t(w, i, primary key(w, i)); create table sum(n); insert into sum values(0);"
    for w in 1 2 3 4; do
        (for i in $(seq 8); do echo "begin immediate; insert into t values($w, $i); update sum set n = n + 1; commit;"; done | sqlite3 -bail -cmd '.timeout 30000' $db || echo "writer $w failed") &
    done
    (for i in 1 2 3 4 5; do sqlite3 -cmd '.timeout 30000' $db 'select (select n from sum) = (select count(*) from t)'; done) &
    wait
    sqlite3 $db "select count(*), (select n from sum) from t; pragma integrity_check; vacuum into 'copy-$mode.db';"
    sqlite3 copy-$mode.db 'select sum(i * w) from t'
    rm copy-$mode.db
    ls $mode.*
done
rm ./*.db

#!/bin/sh
# needs: /usr/sbin/mariadbd mariadb-install-db mariadb
# as: 65534
# A server on a socket in the image: three kinds of tables, killed and recovered, dumped.
mariadb-install-db --no-defaults --datadir="$PWD/data" --auth-root-authentication-method=normal --skip-test-db >install.log 2>&1 || cat install.log
start() {
    /usr/sbin/mariadbd --no-defaults --datadir="$PWD/data" --socket="$PWD/sock" --pid-file="$PWD/pid" --skip-networking \
        --innodb-buffer-pool-size=16M --innodb-log-file-size=8M --lc-messages-dir=/usr/share/mysql >log 2>&1 &
    for _ in $(seq 600); do
        ask 'select 1' >/dev/null 2>&1 && return
        sleep 0.1
    done
    echo 'it does not start'
    cat log
}
ask() { mariadb --no-defaults -S "$PWD/sock" -u root -N -B -e "$1"; }
start
ask 'create database d; create table d.s (seq int primary key)'
ask 'insert into d.s with recursive r as (select 1 as n union all select n + 1 from r where n < 900) select n from r'
for engine in InnoDB Aria MyISAM; do
    ask "create table d.$engine (n int primary key, m char(32), key (m)) engine=$engine;
         insert into d.$engine select a.seq * 900 + b.seq, md5(a.seq * 900 + b.seq) from d.s a join d.s b where a.seq < 20"
done
# Four clients at once.
for client in 1 2 3 4; do
    for n in $(seq 25); do echo "update d.InnoDB set m = md5(concat(m, $n)) where n % 4 = $client - 1 and n < 2000;"; done |
        mariadb --no-defaults -S "$PWD/sock" -u root &
    clients="$clients $!"
done
wait $clients
for engine in InnoDB Aria MyISAM; do ask "select '$engine', count(*), md5(group_concat(m order by n)) from d.$engine; check table d.$engine"; done
# What was committed is there after the server has died.
ask 'delete from d.InnoDB where n % 3 = 0'
kill -9 "$(cat pid)" && wait
start
ask 'select count(*) from d.InnoDB; check table d.InnoDB'
ask 'alter table d.InnoDB engine=Aria; optimize table d.MyISAM; select count(*) from d.InnoDB'
for engine in InnoDB Aria MyISAM; do ask "show create table d.$engine; select * from d.$engine order by n"; done >dump
ask shutdown
wait
# Its own files hold times and identifiers.
rm -rf data install.log log sock pid

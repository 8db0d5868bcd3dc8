#!/bin/sh
# needs: redis-server redis-cli
# A server on a socket in the image: a log of each change, a snapshot by a forked child, both rewritten and read again.
mkdir data && cd data || exit
cat >conf <<'C'
port 0
unixsocket sock
dir .
appendonly yes
appendfsync everysec
save ""
logfile ../log
daemonize yes
pidfile pid
C
start() {
    redis-server conf >/dev/null
    for _ in $(seq 500); do
        [ "$(redis-cli -s sock ping 2>/dev/null)" = PONG ] && return
        sleep 0.02
    done
    echo 'it does not start'
    cat ../log
}
stop() {
    pid=$(cat pid)
    redis-cli -s sock shutdown "$@" 2>/dev/null
    for _ in $(seq 500); do
        kill -0 "$pid" 2>/dev/null || return
        sleep 0.02
    done
    echo 'it does not end'
}
is_done() { # FIELD
    for _ in $(seq 500); do
        redis-cli -s sock info persistence | grep -q "^$1:0" && return
        sleep 0.02
    done
    echo "$1 goes on"
}
start
seq 5000 | sed 's/.*/SET key:& value-&/' | redis-cli -s sock --pipe | tail -1
redis-cli -s sock rpush list a b c d
redis-cli -s sock hset hash x 1 y 2
redis-cli -s sock save
redis-cli -s sock bgrewriteaof
is_done aof_rewrite_in_progress
redis-cli -s sock bgsave
is_done rdb_bgsave_in_progress
redis-cli -s sock set key:1 after
redis-cli -s sock config get appendonly
stop nosave
start
redis-cli -s sock dbsize
redis-cli -s sock mget key:1 key:2 key:5000
redis-cli -s sock lrange list 0 -1
redis-cli -s sock debug jmap >/dev/null 2>&1
kill -9 "$(cat pid)"
sleep 0.1
rm -f sock pid
start
redis-cli -s sock dbsize
redis-cli -s sock hgetall hash
redis-check-rdb dump.rdb | grep -c 'RDB looks OK'
redis-check-aof appendonlydir/*.manifest 2>/dev/null | tail -1
stop
ls -d appendonlydir sock pid 2>&1
cd .. && rm -rf data log

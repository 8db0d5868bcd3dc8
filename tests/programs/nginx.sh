#!/bin/sh
# needs: nginx curl
# A web server: files by sendfile and mmap, uploads that are renamed, a cache, logs that are opened again, a socket in the image.
mkdir -p www/sub logs tmp cache up && chmod 777 up cache tmp
echo hello >www/index.html
seq 20000 >www/big
ln -s big www/link
cat >conf <<C
user root;
worker_processes 2;
pid $PWD/pid;
error_log $PWD/logs/error;
events { worker_connections 64; }
http {
    access_log $PWD/logs/access combined;
    client_body_temp_path $PWD/tmp/body; proxy_temp_path $PWD/tmp/proxy; fastcgi_temp_path $PWD/tmp/f; uwsgi_temp_path $PWD/tmp/u; scgi_temp_path $PWD/tmp/s;
    proxy_cache_path $PWD/cache keys_zone=one:1m;
    client_body_in_file_only on; sendfile on; open_file_cache max=100; autoindex on; autoindex_format json;
    server { listen unix:$PWD/back; root $PWD/www; location /up { alias $PWD/up/; proxy_pass http://unix:$PWD/back2:/; } }
    server { listen unix:$PWD/back2; location / { return 200 "got\n"; } }
    server { listen unix:$PWD/front; location / { proxy_cache one; proxy_cache_valid 1h; add_header X-Cache \$upstream_cache_status; proxy_pass http://unix:$PWD/back:/; } }
}
C
get() { curl -s --unix-socket "$@"; }
nginx -t -q -c "$PWD/conf" && echo 'the configuration is right'
nginx -c "$PWD/conf"
echo "exit $?"
for _ in $(seq 500); do [ -S front ] && [ -s pid ] && break; sleep 0.02; done
get back http://x/
get back http://x/big | cksum
get back -r 1000-1010 http://x/big
get back http://x/link | tail -1
get back http://x/sub/ -o /dev/null -w '%{http_code}\n'
get back http://x/none -o /dev/null -w '%{http_code}\n'
get back --data-binary @www/big http://x/up
cat tmp/body/* | cksum
get front -D - http://x/big -o /dev/null | tr -d '\r' | grep X-Cache
get front -D - http://x/big -o /dev/null | tr -d '\r' | grep X-Cache
find cache -type f | wc -l
mv logs/access logs/old
nginx -c "$PWD/conf" -s reopen 2>/dev/null
for _ in $(seq 500); do [ -e logs/access ] && break; sleep 0.02; done
get back http://x/ >/dev/null
for _ in $(seq 500); do [ -s logs/access ] && break; sleep 0.02; done
cut -d '"' -f 2,3 logs/old logs/access | sort
nginx -c "$PWD/conf" -s quit 2>/dev/null
for _ in $(seq 500); do [ -e pid ] || break; sleep 0.02; done
grep -vc ' signal\|notice' logs/error
ls pid back front 2>/dev/null
rm -rf tmp cache logs conf up

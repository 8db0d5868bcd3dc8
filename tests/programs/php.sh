#!/bin/sh
# needs: php
# Streams, locks, directories, a file cache of compiled code, SQLite.
cat >lib.php <<'P'
<?php
function words(string $s): array { return array_count_values(str_word_count(strtolower($s), 1)); }
P
cat >main.php <<'P'
<?php
require __DIR__ . '/lib.php';
mkdir('d/e/f', 0755, true);
file_put_contents('d/e/f/a.txt', str_repeat("one two two\n", 500));
file_put_contents('d/e/f/a.txt', "three\n", FILE_APPEND | LOCK_EX);
print_r(words(file_get_contents('d/e/f/a.txt')));
copy('d/e/f/a.txt', 'd/b.txt');
rename('d/b.txt', 'd/c.txt');
symlink('c.txt', 'd/l');
link('d/c.txt', 'd/h');
echo readlink('d/l'), ' ', filesize('d/l'), ' ', stat('d/h')['nlink'], ' ', decoct(fileperms('d/e')), "\n";
$names = [];
foreach (new RecursiveIteratorIterator(new RecursiveDirectoryIterator('d', FilesystemIterator::SKIP_DOTS), RecursiveIteratorIterator::SELF_FIRST) as $f) $names[] = "$f";
sort($names);
echo implode("\n", $names), "\n";
$h = fopen('d/c.txt', 'c+');
var_dump(flock($h, LOCK_EX), ftruncate($h, 7), fseek($h, 0, SEEK_END), fwrite($h, "tail"), rewind($h), fread($h, 99));
fclose($h);
$t = tempnam('d', 'tmp');
var_dump(dirname($t) === realpath('d'), unlink($t), @unlink($t), error_get_last()['message'] === "unlink($t): No such file or directory");
$z = gzopen('d/z.gz', 'w9'); gzwrite($z, str_repeat('x', 100000)); gzclose($z);
echo strlen(implode(gzfile('d/z.gz'))), "\n";
echo @file_get_contents('none') === false ? "none\n" : "?\n", realpath('d/../d/l') === realpath('d/c.txt') ? "same\n" : "?\n";
if (class_exists('SQLite3')) {
    $b = new SQLite3('base.db');
    $b->exec('pragma journal_mode=wal; create table t(a integer primary key, b text)');
    $b->exec('begin');
    for ($i = 0; $i < 2000; $i++) $b->exec("insert into t(b) values (" . $i * $i . ")");
    $b->exec('commit');
    echo $b->querySingle('select count(*) || " " || sum(b) from t'), ' ', $b->querySingle('pragma integrity_check'), "\n";
    $b->close();
}
P
mkdir cache
for _ in 1 2; do
    rm -rf d base.db
    php -d zend_extension=opcache -d opcache.enable_cli=1 -d opcache.file_cache="$PWD/cache" -d opcache.file_cache_only=1 main.php
done
find cache -name '*.bin' | sed 's/.*\///' | sort
rm -rf cache d/z.gz base.db

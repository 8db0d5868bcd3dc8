#!/bin/sh
# Standard library on files: imports from inside, compilation, pickles, sqlite, mmap, tempfile, multiprocessing.
mkdir -p pkg/sub
echo 'VALUE = 7' >pkg/__init__.py
echo 'from . import __init__; def f(): pass' | tr ';' '\n' | head -1 >pkg/sub/__init__.py
: >pkg/sub/__init__.py
python3 - <<'P'
import sys, os; sys.path.insert(0, '.')
import pkg, pkg.sub; print(pkg.VALUE, sorted(os.listdir('pkg')))
import json, pickle, shutil, tempfile, glob, pathlib, csv, zipfile, tarfile, subprocess, mmap, hashlib, configparser, shelve, io
json.dump({'a': [1, 2]}, open('j', 'w')); print(json.load(open('j')))
pickle.dump(list(range(1000)), open('p', 'wb')); print(sum(pickle.load(open('p', 'rb'))))
p = pathlib.Path('x/y/z'); p.mkdir(parents=True); (p / 'f').write_text('text\n' * 100); print((p / 'f').stat().st_size, sorted(map(str, pathlib.Path('.').rglob('*'))))
print(sorted(glob.glob('**', recursive=True)))
with tempfile.TemporaryDirectory(dir='.') as d, tempfile.NamedTemporaryFile(dir=d) as f, tempfile.TemporaryFile(dir=d) as g: f.write(b'x'); g.write(b'y'); f.flush(); print(os.path.getsize(f.name))
shutil.copytree('x', 'c'); shutil.move('c', 'm'); print(sorted(os.listdir('m/y/z'))); shutil.make_archive('arch', 'gztar', 'x'); print(tarfile.open('arch.tar.gz').getnames()); shutil.rmtree('m'); print(shutil.disk_usage('.').total > 0)
with zipfile.ZipFile('z.zip', 'w') as z: z.write('j'); print(z.namelist())
with open('mm', 'wb+') as f: f.truncate(8192); m = mmap.mmap(f.fileno(), 0); m[4096:4100] = b'abcd'; m.flush(); m.close(); f.seek(4096); print(f.read(4))
print(hashlib.md5(open('p', 'rb').read()).hexdigest())
import sqlite3
for mode in 'delete', 'wal', 'truncate', 'memory':
    c = sqlite3.connect('db-' + mode); print(c.execute('pragma journal_mode=' + mode).fetchone()); c.execute('create table t(a primary key, b)')
    for i in range(20):
        with c: c.executemany('insert into t values(?,?)', [(i * 50 + j, 'v' * j) for j in range(50)])
    print(c.execute('select count(*), sum(a), sum(length(b)) from t').fetchone(), c.execute('pragma integrity_check').fetchone()); c.close()
print(sorted(os.listdir('.')))
d = shelve.open('shelf'); d['k'] = 'v'; d.close(); print(shelve.open('shelf')['k'])
print(subprocess.run(['sh', '-c', 'cat j; pwd >w; wc -c <j'], capture_output=True, text=True).stdout); print(os.path.basename(open('w').read()))
with open('log', 'w') as f: subprocess.run(['echo', 'to log'], stdout=f, check=True)
print(open('log').read()); os.symlink('j', 'l'); print(os.path.realpath('l') == os.path.realpath('j'), os.path.samefile('l', 'j'))
from multiprocessing import Pool
def work(i): open('mp%d' % i, 'w').write('x' * i); return os.path.getsize('mp%d' % i)
if __name__ == '__main__':
    with Pool(2) as pool: print(pool.map(work, range(8)))
from concurrent.futures import ThreadPoolExecutor
print(sum(ThreadPoolExecutor(4).map(lambda i: len(open('p', 'rb').read()), range(32))))
P
python3 -m compileall -q pkg
ls pkg/__pycache__ | wc -l
python3 -c 'import pkg; print(pkg.__cached__ is not None)'
echo 'print("script", __file__)' >s.py
python3 s.py
python3 -m pkg.nope 2>&1 | tail -1
python3 -m venv --without-pip v 2>&1 | tail -1
ls v
python3 -m zipfile -l z.zip | wc -l
python3 -m http.server --help >/dev/null && echo end

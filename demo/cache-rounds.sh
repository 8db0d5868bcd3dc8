#!/bin/bash
# The time of a round beside the number of changes behind a cache image: new files, hard links of one file, directories
# that are moved, directories in one another.
#
#   demo/cache-rounds.sh [OUT]     OUT.csv and OUT.svg (docs/results/cache-rounds), a table on standard output; two minutes
#   COUNTS='2500 5000 10000 20000' numbers of changes; DEPTHS='30 60 90 120' levels
#   ON=/dev/shm                    what the directory lies on
#   BYPATH=target/release/bypath
#
# A session leaves its changes in the image (--leave); timed is `bypath cache drain`: one round, without syncs of a disk.
set -eu
export LC_ALL=C
here=$(cd "$(dirname "$0")/.." && pwd)
export BYPATH=${BYPATH:-$here/target/release/bypath}
exec python3 -B - "${1:-$here/docs/results/cache-rounds}" <<'P'
import json, os, subprocess, sys, tempfile, time
out, bypath = sys.argv[1], os.environ['BYPATH']
on = os.environ.get('ON', '/dev/shm')
counts = [int(n) for n in os.environ.get('COUNTS', '2500 5000 10000 20000').split()]
depths = [int(n) for n in os.environ.get('DEPTHS', '30 60 90 120').split()]
work = {
    'new files': (counts, '', 'os.mkdir("n")\nfor i in range(n):\n  with open(f"n/f{i}", "w") as f: f.write("x" * 100)'),
    'hard links of one file': (counts, '', 'os.mkdir("n"); open("f", "w").close()\nfor i in range(n): os.link("f", f"n/l{i}")'),
    'directories moved': (counts, 'os.mkdir("to")\nfor i in range(n): os.mkdir(f"d{i}")', 'for i in range(n): os.rename(f"d{i}", f"to/m{i}")'),
    'directories in one another': (depths, '', 'for i in range(n): os.mkdir("d"); os.chdir("d")'),
}
def timed(before, change, n):
    top = tempfile.mkdtemp(prefix='bypath-rounds.', dir=on); low, image = top + '/low', top + '/image'
    os.mkdir(low)
    program = 'import os, sys; os.chdir(sys.argv[1]); n = int(sys.argv[2])\n'
    try:
        subprocess.run([sys.executable, '-c', program + before, low, str(n)], check=True)
        mount = f'host:{low}:/bypath-rounds,cache={image}:1G,sync=image'
        run = [bypath, 'run', '--no-fuse', '--leave', '--mount', mount, '--', sys.executable, '-B', '-c', program + change, '/bypath-rounds', str(n)]
        subprocess.run(run, check=True, stderr=subprocess.DEVNULL)
        status = json.loads(subprocess.run([bypath, 'cache', 'status', '--json', image], check=True, capture_output=True).stdout)
        if status['names'] < n: return None  # it took a second: the session has made a round itself
        begun = time.perf_counter()
        subprocess.run([bypath, 'cache', 'drain', image], check=True)
        return time.perf_counter() - begun
    finally:
        subprocess.run(['rm', '-rf', top])
rows = []
for what, (numbers, before, change) in work.items():
    for n in numbers:
        took = []
        for _ in range(12):
            seconds = timed(before, change, n)
            if seconds is not None: took.append(seconds)
            if len(took) == 3: break
        if not took: sys.exit(f'{what}, {n}: no session ended before its first round; try fewer')
        rows.append((what, n, min(took), sorted(took)[1]))
        print(f'| {what} | {n} | {min(took):.3f} | {sorted(took)[1]:.3f} |', flush=True)
with open(out + '.csv', 'w') as f:
    f.write('what,number,seconds_least,seconds_median\n')
    for row in rows: f.write('%s,%d,%.4f,%.4f\n' % row)
W, H, svg = 330, 240, []
for at, what in enumerate(work):
    x0, y0 = 60 + at % 2 * W, 40 + at // 2 * H
    points = [(n, least) for name, n, least, _ in rows if name == what]
    most_n, most_s = max(n for n, _ in points), max(s for _, s in points)
    place = lambda n, s: (x0 + 240 * n / most_n, y0 + 170 - 160 * s / most_s)
    svg.append(f'<text x="{x0}" y="{y0 - 8}" font-size="13">{what}</text>')
    svg.append(f'<path d="M{x0} {y0}V{y0 + 170}H{x0 + 250}" fill="none" stroke="#888"/>')
    (a, b), (c, d) = place(0, 0), place(*points[-1])
    svg.append(f'<path d="M{a:.1f} {b:.1f}L{c:.1f} {d:.1f}" stroke="#ccc" stroke-dasharray="4 3"/>')
    svg.append('<polyline fill="none" stroke="#1f77b4" stroke-width="2" points="%s"/>' % ' '.join('%.1f,%.1f' % place(*p) for p in points))
    for p in points:
        svg.append('<circle cx="%.1f" cy="%.1f" r="3" fill="#1f77b4"/>' % place(*p))
    svg.append(f'<text x="{x0 + 215}" y="{y0 + 186}" font-size="11">{most_n}</text><text x="{x0 - 50}" y="{y0 + 14}" font-size="11">{most_s:.2f} s</text>')
with open(out + '.svg', 'w') as f:
    f.write(f'<svg xmlns="http://www.w3.org/2000/svg" width="{2 * W + 60}" height="{2 * H + 40}" font-family="sans-serif"><rect width="100%" height="100%" fill="white"/>' + '\n'.join(svg) + '</svg>\n')
P

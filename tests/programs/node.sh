#!/bin/sh
# needs: node
# Files by calls, promises, callbacks and streams; modules, children, workers.
cat >lib.js <<'P'
exports.name = __filename.split('/').pop();
P
cat >t.js <<'P'
const fs = require('fs'), path = require('path'), cp = require('child_process'), os = require('os'), { pipeline } = require('stream/promises'), zlib = require('zlib');
const sh = (...a) => console.log(...a), code = f => { try { f(); return 'none' } catch (e) { return e.code } };
(async () => {
    sh(require('./lib').name); fs.mkdirSync('d/e/f', { recursive: true }); fs.writeFileSync('d/a', 'hello'); fs.appendFileSync('d/a', ' world'); sh(fs.readFileSync('d/a', 'utf8'), fs.statSync('d/a').size, fs.existsSync('no'));
    sh(code(() => fs.readFileSync('no')), code(() => fs.mkdirSync('d')), code(() => fs.rmdirSync('d')), code(() => fs.readdirSync('d/a')), code(() => fs.openSync('d/a', 'wx')), code(() => fs.accessSync('no')));
    fs.symlinkSync('a', 'd/s'); fs.linkSync('d/a', 'd/h'); sh(fs.readlinkSync('d/s'), fs.lstatSync('d/s').isSymbolicLink(), fs.statSync('d/h').nlink, path.relative('.', fs.realpathSync('d/s'))); fs.chmodSync('d/a', 0o600); fs.utimesSync('d/a', 1e9, 1e9 + 1); sh(fs.statSync('d/a').mode.toString(8), fs.statSync('d/a').mtimeMs);
    const fd = fs.openSync('r', 'w+'); fs.writeSync(fd, Buffer.from('0123456789'), 0, 10, 5); fs.ftruncateSync(fd, 12); const b = Buffer.alloc(20); sh(fs.readSync(fd, b, 0, 20, 4), b.toString('latin1', 0, 8)); fs.fsyncSync(fd); fs.closeSync(fd);
    await Promise.all([...Array(50).keys()].map(async i => { await fs.promises.writeFile(`p${i}`, 'x'.repeat(i)); await fs.promises.rename(`p${i}`, `q${i}`); })); sh((await fs.promises.readdir('.')).filter(n => /^q/.test(n)).length);
    const list = []; for await (const e of await fs.promises.opendir('d')) list.push(e.name + e.isDirectory()); sh(list.sort()); sh(fs.readdirSync('d', { withFileTypes: true }).map(e => e.name).sort());
    await pipeline(fs.createReadStream('/usr/share/common-licenses/GPL-3'), zlib.createGzip(), fs.createWriteStream('g.gz')); await pipeline(fs.createReadStream('g.gz'), zlib.createGunzip(), fs.createWriteStream('g')); sh(fs.readFileSync('g').equals(fs.readFileSync('/usr/share/common-licenses/GPL-3'))); fs.rmSync('g.gz');
    fs.copyFileSync('g', 'g2'); fs.cpSync('d', 'copy', { recursive: true }); sh(fs.readdirSync('copy').sort()); fs.rmSync('copy', { recursive: true }); sh(code(() => fs.rmSync('copy'))); const t = fs.mkdtempSync('tmp/x'); fs.rmdirSync(t); sh(t.length, os.tmpdir() == process.cwd() + '/tmp');
    sh(cp.execSync('cat d/a; pwd | wc -l').toString(), cp.spawnSync(process.execPath, ['-p', 'process.cwd().split("/").pop()'], { cwd: 'd/e' }).stdout.toString()); const o = fs.openSync('out', 'w'); await new Promise(r => cp.spawn('sh', ['-c', 'echo child; echo err >&2'], { stdio: ['ignore', o, o] }).on('close', r)); sh(fs.readFileSync('out', 'utf8'));
    const { Worker } = require('worker_threads'); await new Promise(r => new Worker("require('fs').writeFileSync('w', 'worker')", { eval: true }).on('exit', r)); sh(fs.readFileSync('w', 'utf8')); fs.writeFileSync('m.mjs', "import { readFileSync } from 'fs'; export default readFileSync('w', 'utf8').length"); sh((await import(process.cwd() + '/m.mjs')).default); process.chdir('d'); sh(path.basename(process.cwd()), fs.readdirSync('..').length > 50);
})();
P
node t.js
echo "exit $?"

#!/bin/bash
# needs: node
# fs.watch and fs.watchFile's successor as bundlers use it: a directory, a file, and a tree (recursive), told of what
# another process does.
mkdir -p tree/sub
echo 1 >tree/file
cat >watch.js <<'J'
const fs = require('fs'), { spawnSync } = require('child_process');
const seen = new Set();
const note = (which) => (event, name) => seen.add(`${which} ${event} ${name}`);
const watchers = [fs.watch('tree', note('directory')), fs.watch('tree/file', note('file'))];
if (process.versions.node.split('.')[0] >= 20) watchers.push(fs.watch('tree', { recursive: true }, note('tree')));
const wanted = ['directory rename new', 'directory change file', 'file change file', 'directory rename gone'];
setTimeout(() => spawnSync('sh', ['-c', 'echo 2 >>tree/file; echo x >tree/new; echo y >tree/sub/deep; echo z >tree/gone; rm tree/gone; mv tree/new tree/newer']), 300);
const end = Date.now() + 20000;
const look = () => {
  if (wanted.every((one) => seen.has(one)) || Date.now() > end) {
    for (const one of wanted) console.log(one, seen.has(one));
    watchers.forEach((one) => one.close());
  } else setTimeout(look, 20);
};
look();
J
node watch.js 2>&1

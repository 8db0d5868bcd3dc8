#!/bin/sh
# needs: python3
# ignore: ^./(esbuild|biome|uv)/
# Static programs as people install them: esbuild (Go), biome and uv (Rust, musl), unpacked and run in the tree.
mkdir esbuild biome uv
tar -C esbuild -xf /given/esbuild-*.tgz && tar -C biome -xf /given/biomejs-*.tgz && python3 -m zipfile -e /given/uv-*musllinux*.whl uv
echo "unpacked $?"
uv=$(echo uv/uv-*.data/scripts/uv)
chmod +x "$uv"
mkdir src
echo 'import { f } from "./f"; console.log(f(3));' >src/main.ts
echo 'export const f = (x: number): number => x * 14;' >src/f.ts
esbuild/package/bin/esbuild src/main.ts --bundle --outfile=out.js --log-level=warning
echo "esbuild $?"
cat out.js
printf 'const   x  =  [1,2 ,3]\n' >bad.js
biome/package/biome format --colors=off --write bad.js 2>&1 | sed 's/ in [0-9.]*[mµn]*s//'
cat bad.js
export UV_CACHE_DIR="$PWD/cache" UV_NO_PROGRESS=1 UV_PYTHON_DOWNLOADS=never NO_COLOR=1 UV_OFFLINE=1
"$uv" venv -q --python /usr/bin/python3 env
echo "venv $?"
cp /given/bypath-*.whl .
"$uv" pip install -q --python env/bin/python --no-index --find-links . bypath
echo "install $?"
env/bin/python -c 'import bypath; print(bypath.__name__)'
"$uv" pip list --python env/bin/python
rm -rf cache env tmp ./*.whl

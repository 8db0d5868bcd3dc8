#!/bin/sh
# needs: uv python3
# ignore: \.whl$
# An environment, a package in and out of it, a project: uv's own system calls, by rustix.
export UV_CACHE_DIR="$PWD/cache" UV_NO_PROGRESS=1 UV_PYTHON=$(command -v python3) UV_PYTHON_DOWNLOADS=never NO_COLOR=1
mkdir -p wheel/tiny wheel/tiny-1.0.dist-info
uv venv -q env
echo "venv $?"
cd wheel || exit
echo 'value = 42' >tiny/__init__.py
printf 'Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n' >tiny-1.0.dist-info/METADATA
printf 'Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n' >tiny-1.0.dist-info/WHEEL
printf '%s,,\n' tiny/__init__.py tiny-1.0.dist-info/METADATA tiny-1.0.dist-info/WHEEL tiny-1.0.dist-info/RECORD >tiny-1.0.dist-info/RECORD
python3 -c 'import zipfile
z = zipfile.ZipFile("../tiny-1.0-py3-none-any.whl", "w")
for name in ["tiny/__init__.py"] + ["tiny-1.0.dist-info/" + n for n in ("METADATA", "WHEEL", "RECORD")]: z.write(name)'
cd ..
uv pip install -q --offline --python env/bin/python ./tiny-1.0-py3-none-any.whl
echo "install $?"
env/bin/python -c 'import tiny; print(tiny.value)'
uv pip list --python env/bin/python
uv pip uninstall -q --python env/bin/python tiny
echo "uninstall $?"
uv pip install -q --offline --python env/bin/python --find-links . tiny
echo "again $?"
uv cache prune -q
echo "prune $?"
uv init -q --no-workspace proj
echo "init $?"
cd proj || exit
uv lock -q --offline
echo "lock $?"
uv run -q --offline python -c 'print(7)'
echo "run $?"
cd ..
# Names in its cache and of its locks are of chance: how many there are is compared.
find cache -type f | wc -l
find env proj -type f | grep -vc __pycache__
rm -rf cache env proj/.venv tmp

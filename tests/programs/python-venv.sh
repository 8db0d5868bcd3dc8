#!/bin/bash
# needs: python3 pip3
# ignore: \.pyc$|/RECORD$|/pyvenv.cfg$|\.whl$|/bin/
# An environment of its own, a wheel put together by hand and installed from the tree, its program run.
mkdir -p w/tiny w/tiny-1.0.dist-info
echo 'import pathlib
def main(): print("tiny", pathlib.Path(__file__).parent.name, (pathlib.Path(__file__).parent / "data.txt").read_text().strip())' >w/tiny/__init__.py
echo data >w/tiny/data.txt
cd w || exit
printf 'Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n' >tiny-1.0.dist-info/METADATA
printf 'Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n' >tiny-1.0.dist-info/WHEEL
printf '[console_scripts]\ntiny = tiny:main\n' >tiny-1.0.dist-info/entry_points.txt
for f in tiny/* tiny-1.0.dist-info/*; do echo "$f,,"; done >tiny-1.0.dist-info/RECORD
python3 -m zipfile -c ../tiny-1.0-py3-none-any.whl tiny tiny-1.0.dist-info
cd ..
python3 -m venv --without-pip e
echo "exit $?"
ls e e/bin
site=$(e/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
pip() { python3 -m pip --python e/bin/python --disable-pip-version-check "$@"; }
export PIP_NO_INDEX=1
pip install -q --no-compile --no-cache-dir ./tiny-1.0-py3-none-any.whl
echo "exit $?"
e/bin/tiny
e/bin/python -c 'import tiny, sys; tiny.main(); print(sys.prefix != sys.base_prefix)'
ls "$site" e/bin | sort
rm -r e/lib*

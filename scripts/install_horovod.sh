#!/usr/bin/env bash
# Build Horovod against the installed torch, and check it with a real all-reduce between two processes.
# It takes 2 to 10 minutes the first time; pip keeps the wheel in its cache for the next.
#
# Needs g++ and cmake. Horovod asks for C++14, but torch's headers have needed C++17 since 2.1 (horovod issues
# 3996 and 4014), and its build takes no other flags: so it gets a compiler that adds the flag.
set -euo pipefail
cd "$(dirname "$0")/.."
python -c "import torch" 2>/dev/null || {
    echo "error: install requirements.txt first: Horovod is built against torch" >&2
    exit 1
}
command -v g++ >/dev/null || {
    echo "error: Horovod is compiled here and needs g++ (Debian: apt install g++)" >&2
    exit 1
}
pip install --quiet wheel setuptools packaging
command -v cmake >/dev/null || pip install --quiet "cmake<4"

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
printf '#!/bin/sh\nexec g++ "$@" -std=c++17 -g0\n' >"$folder/c++17"
chmod +x "$folder/c++17"
export CXX="$folder/c++17" HOROVOD_WITH_PYTORCH=1 HOROVOD_WITH_GLOO=1
export HOROVOD_WITHOUT_MPI=1 HOROVOD_WITHOUT_TENSORFLOW=1 HOROVOD_WITHOUT_MXNET=1

check() {
    horovodrun -np 2 -H localhost:2 --gloo python scripts/check_horovod.py
}

pip install --no-build-isolation "$@" -r requirements/horovod.txt
if ! check; then
    echo "the wheel from pip's cache does not fit this torch; building it again" >&2
    pip install --no-build-isolation --no-cache-dir --force-reinstall --no-deps "$@" \
        -r requirements/horovod.txt
    check
fi
echo "Horovod works: horovodrun -np 2 -H localhost:2 --gloo python run_horovod.py"

#!/bin/sh
# Compiles src/backends/nccl/kernels/kernels.cu to PTX text: generate_kernels.sh [OUTPUT]. Needs nvcc.
# The text uses no instruction that is newer than PTX 6.3 and sm_52. nvcc names its own version and its oldest GPU in it,
# and a driver refuses a version that is newer than its own, so these two lines are rewritten.
set -eu
folder=$(cd "$(dirname "$0")/../src/backends/nccl/kernels" && pwd)
output=${1:-$folder/kernels.ptx}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
nvcc --ptx --std=c++17 -arch=compute_75 --fmad=false --ftz=false -o "$work/kernels.ptx" "$folder/kernels.cu"
sed -e 's/^\.version .*/.version 6.3/' -e 's/^\.target .*/.target sm_52/' -e '/^[[:space:]]*\/\//d' -e '/^$/d' \
  -e '/\.pragma "nounroll"/d' "$work/kernels.ptx" >"$output"

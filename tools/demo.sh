#!/usr/bin/env bash
# Trains a small network on handwritten digits with PyTorch, with one process and with two, and compares them.
set -euo pipefail
cd "$(dirname "$0")/.."

bin=.venv/bin
out=build/demo
mkdir -p "$out"
script=(examples/pytorch_mnist.py --epochs "${EPOCHS:-8}" --lr 0.05 --momentum 0.9 --no-cuda --log-interval 0)

# Each process computes with one thread in both runs, so that the comparison is one core against two.
export OMP_NUM_THREADS=1
echo "== one process"
"$bin/python" "${script[@]}" --report "$out/one.json"
echo
echo "== horovodrun -np 2"
"$bin/horovodrun" -np 2 --timeline-filename "$out/timeline.json" "$bin/python" "${script[@]}" --report "$out/two.json"
echo
"$bin/python" - "$out" <<'PY'
import json
import pathlib
import sys

out = pathlib.Path(sys.argv[1])
one, two = (json.loads((out / f"{name}.json").read_text()) for name in ("one", "two"))
speed = two["images_per_second"] / one["images_per_second"]
print(f"test accuracy: {two['accuracy']:.3f} with 2 processes, {one['accuracy']:.3f} with 1")
print(f"speed: {two['images_per_second']:.0f} images/s, {speed:.2f} times one process")
print(f"timeline: {out / 'timeline.json'} (open it at https://ui.perfetto.dev)")
PY

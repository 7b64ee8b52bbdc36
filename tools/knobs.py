#!/usr/bin/env python3
"""Writes docs/knobs.md from the engine's own table of knobs.

    tools/knobs.py --library build/release/libhorovod.so > docs/knobs.md

Without --library the table's JSON is read from standard input.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import sys

HEADER = """\
# Knobs

The environment variables that the engine reads. `tools/knobs.py` generates this page from the table in
`src/model/config.cc`; change it there.

A value outside its range is an error at `init()` that names the variable. An empty value counts as unset. Flags are
integers: above 0 is true, and text such as `true` counts as 0. The autotuner does not change a knob that you set. Knobs
that must be the same on several ranks are compared when the ranks meet; a difference is an error that names the ranks
and the values.

| Variable | Default | Values | Meaning |
| --- | --- | --- | --- |
"""

SAME = {
    "": "",
    "host": "The same on all ranks of a host.",
    "world": "The same on all ranks.",
}


def read_knobs(library: str | None) -> list[dict[str, str]]:
    if library is None:
        text = sys.stdin.read()
    else:
        knobs_json = ctypes.CDLL(library).hvd_knobs_json
        knobs_json.restype = ctypes.c_char_p
        text = knobs_json().decode()
    knobs: list[dict[str, str]] = json.loads(text)
    return knobs


def markdown(knobs: list[dict[str, str]]) -> str:
    rows = []
    for knob in knobs:
        default = f"`{knob['default']}`" if knob["default"] else "unset"
        text = f"{knob['text']} {SAME[knob['same']]}".strip()
        rows.append(f"| `{knob['name']}` | {default} | {knob['range']} | {text} |\n")
    return HEADER + "".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description="Prints docs/knobs.md.")
    parser.add_argument("--library", help="libhorovod.so to ask; otherwise JSON is read from standard input")
    sys.stdout.write(markdown(read_knobs(parser.parse_args().library)))


if __name__ == "__main__":
    main()

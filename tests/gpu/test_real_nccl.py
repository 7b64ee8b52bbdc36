"""The real NCCL library, where there is one: what the backend uses of it is there, and without a driver it says so.

HVD_TEST_NCCL names a library or its folder; else that of the package nvidia-nccl-cu12 in this environment is taken.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OLDEST = 21801


def find() -> Path | None:
    named = os.environ.get("HVD_TEST_NCCL")
    if named:
        return Path(named) / "libnccl.so.2" if Path(named).is_dir() else Path(named)
    try:
        spec = importlib.util.find_spec("nvidia.nccl")
    except ModuleNotFoundError:
        return None
    folders = list(spec.submodule_search_locations or []) if spec else []
    found = [Path(folder) / "lib" / "libnccl.so.2" for folder in folders]
    return next((path for path in found if path.exists()), None)


# In a process of its own: a library that is loaded here would take the place of the stand-in's in others.
ASK = """
import ctypes, sys
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_void_p

class Id(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_char * 128)]

class Config(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("magic", c_uint), ("version", c_uint), ("blocking", c_int), ("cga", c_int),
                ("min_ctas", c_int), ("max_ctas", c_int), ("net", c_char_p), ("split_share", c_int), ("traffic", c_int)]

nccl = ctypes.CDLL(sys.argv[1])
print("missing", [name for name in sys.argv[2:] if not hasattr(nccl, name)])
version = c_int()
print("version", nccl.ncclGetVersion(byref(version)), version.value)
own = Id()
print("id", nccl.ncclGetUniqueId(byref(own)), any(bytes(own)))
u = -2**31
config = Config(48, 0xCAFEBEEF, 21800, 0, u, u, u, None, u, u)
assert ctypes.sizeof(config) == 48
comm = c_void_p()
nccl.ncclCommInitRankConfig.argtypes = [c_void_p, c_int, Id, c_int, c_void_p]
print("init", nccl.ncclCommInitRankConfig(byref(comm), 1, own, 0, byref(config)), comm.value)
nccl.ncclGetLastError.restype = c_char_p
nccl.ncclGetLastError.argtypes = [c_void_p]
print("last", nccl.ncclGetLastError(None).decode())
nccl.ncclCommAbort.argtypes = [c_void_p]
print("abort", nccl.ncclCommAbort(None))
print("group", nccl.ncclGroupStart(), nccl.ncclGroupEnd())
"""


def has_driver() -> bool:
    code = "import ctypes, sys; sys.exit(ctypes.CDLL('libcuda.so.1').cuInit(0))"
    return subprocess.run([sys.executable, "-c", code], check=False, capture_output=True).returncode == 0


def test_the_real_library_has_what_the_backend_uses() -> None:
    library = find()
    if library is None:
        pytest.skip("skipped: no libnccl.so.2; pip install nvidia-nccl-cu12 (300 MB), or name one in HVD_TEST_NCCL")
    source = (ROOT / "src" / "backends" / "nccl" / "nccl_api.cc").read_text()
    symbols = re.findall(r'nccl_symbol\(api\.\w+, "(\w+)"\)', source)
    assert len(symbols) > 15
    command = [sys.executable, "-c", ASK, str(library), *symbols]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    lines = dict(line.split(" ", 1) for line in said.splitlines())
    assert lines["missing"] == "[]"
    code, version = map(int, lines["version"].split())
    assert code == 0
    assert version >= OLDEST
    assert lines["id"] == "0 True"
    if not has_driver():
        assert lines["init"] == "1 None"
        assert "driver" in lines["last"]
    assert lines["abort"] == "0"
    assert lines["group"] == "0 0"

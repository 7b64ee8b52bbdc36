"""The ctypes declarations are those of the header, in every name, number, type and offset."""

from __future__ import annotations

import ctypes
import re
import subprocess
from ctypes import POINTER, c_char_p, c_double, c_int, c_int32, c_int64, c_uint32, c_uint64, c_void_p
from enum import IntEnum
from pathlib import Path
from typing import Any

import pytest
from ranks import ROOT

from horovod._native import abi

HEADER = ROOT / "include" / "horovod" / "horovod.h"
CODE = re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.DOTALL)

ENUMS: dict[str, type[IntEnum]] = {
    "hvd_code": abi.Code,
    "hvd_dtype": abi.DType,
    "hvd_kind": abi.Kind,
    "hvd_reduce_op": abi.ReduceOp,
    "hvd_failure_kind": abi.FailureKind,
    "hvd_hosts_change": abi.HostsChange,
    "hvd_driver_action_kind": abi.DriverActionKind,
}
STRUCTS: dict[str, type[ctypes.Structure]] = {
    "hvd_tensor": abi.Tensor,
    "hvd_request": abi.Request,
    "hvd_submit_options": abi.SubmitOptions,
    "hvd_failure": abi.Failure,
    "hvd_elastic_event": abi.ElasticEvent,
    "hvd_driver_settings": abi.DriverSettings,
    "hvd_driver_action": abi.DriverAction,
}
CALLBACKS: dict[str, Any] = {"hvd_allocate": abi.ALLOCATE, "hvd_done": abi.DONE}
TYPES: dict[str, Any] = {
    "void": None,
    "int32_t": c_int32,
    "uint32_t": c_uint32,
    "int64_t": c_int64,
    "uint64_t": c_uint64,
    "double": c_double,
    "hvd_handle": abi.Handle,
    "void*": c_void_p,
    "char*": c_char_p,
    "char**": POINTER(c_char_p),
    "double*": POINTER(c_double),
    "int32_t*": POINTER(c_int32),
    "int64_t*": POINTER(c_int64),
    "hvd_handle*": POINTER(abi.Handle),
    "hvd_driver*": abi.DriverPointer,
    "hvd_listener*": abi.ListenerPointer,
    "hvd_listener**": POINTER(abi.ListenerPointer),
    "hvd_connection*": abi.ConnectionPointer,
    "hvd_connection**": POINTER(abi.ConnectionPointer),
    "hvd_driver**": POINTER(abi.DriverPointer),
    **dict.fromkeys(ENUMS, c_int),
    **STRUCTS,
    **{f"{name}*": POINTER(struct) for name, struct in STRUCTS.items()},
    **CALLBACKS,
}


def ctype(text: str) -> Any:
    return TYPES[re.sub(r"\bconst\b", "", text).replace(" ", "")]


def declarations(text: str) -> list[tuple[str, Any]]:
    """`const char* path, int32_t mark` as names and types."""
    found = re.findall(r"((?:const )?\w+\s*\*?(?: const)?\*?)\s*(\w+)\s*(?:[,;]|$)", text.strip())
    return [(name, ctype(kind)) for kind, name in found]


def prototypes(pattern: str) -> dict[str, tuple[Any, list[Any]]]:
    found = {}
    for result, name, arguments in re.findall(pattern, CODE, flags=re.DOTALL):
        listed = [] if arguments.strip() == "void" else declarations(arguments)
        assert len(listed) == (0 if arguments.strip() == "void" else arguments.count(",") + 1)
        found[name] = (ctype(result), [kind for _, kind in listed])
    return found


def test_constants() -> None:
    assert re.search(rf"#define HVD_ABI_VERSION 0x{abi.ABI_VERSION:08x}u", CODE)
    assert re.search(rf"#define HVD_HOST_DEVICE \({abi.HOST_DEVICE}\)", CODE)
    assert re.search(rf"#define HVD_WORLD_SET {abi.WORLD_SET}\s", CODE)
    assert re.search(rf"#define HVD_NO_RESETS \({abi.NO_RESETS}\)", CODE)


def test_every_enum_and_its_numbers() -> None:
    declared = {
        name: {key: int(value) for key, value in re.findall(r"HVD_(\w+) = (\d+)", body)}
        for body, name in re.findall(r"typedef enum \w+ \{(.*?)\} (\w+);", CODE, flags=re.DOTALL)
    }
    assert declared == {
        name: {key: int(value) for key, value in enum.__members__.items()} for name, enum in ENUMS.items()
    }


def test_every_struct_and_its_fields_in_order() -> None:
    declared = {
        name: declarations(body)
        for body, name in re.findall(r"typedef struct \w+ \{(.*?)\} (\w+);", CODE, flags=re.DOTALL)
    }
    assert declared == {name: list(struct._fields_) for name, struct in STRUCTS.items()}


def test_every_callback() -> None:
    declared = prototypes(r"typedef ([\w ]+\*?) ?\(\*(\w+)\)\((.*?)\);")
    assert declared == {name: (callback._restype_, list(callback._argtypes_)) for name, callback in CALLBACKS.items()}


def test_every_function() -> None:
    declared = prototypes(r"HVD_EXPORT ((?:const )?\w+\*?) (\w+)\((.*?)\);")
    assert declared == {name: (each.result, each.arguments) for name, each in abi.PROTOTYPES.items()}
    assert len(declared) == CODE.count("HVD_EXPORT ") - CODE.count("#define HVD_EXPORT ")


def test_the_compiler_agrees_on_sizes_and_offsets(tmp_path: Path) -> None:
    fields = [(name, field[0]) for name, struct in STRUCTS.items() for field in struct._fields_]
    lines = [f'printf("%zu\\n", offsetof({name}, {field}));' for name, field in fields]
    lines += [f'printf("%zu\\n", sizeof({name}));' for name in [*STRUCTS, *ENUMS]]
    program = tmp_path / "layout.c"
    program.write_text(
        "#include <stdio.h>\n#include <horovod/horovod.h>\nint main(void) {\n" + "\n".join(lines) + "\nreturn 0;\n}\n"
    )
    binary = tmp_path / "layout"
    subprocess.run(
        ["cc", "-std=c99", "-Werror", "-I", str(ROOT / "include"), str(program), "-o", str(binary)], check=True
    )
    printed = [int(line) for line in subprocess.check_output([str(binary)], text=True).split()]
    expected = [getattr(STRUCTS[name], field).offset for name, field in fields]
    expected += [ctypes.sizeof(struct) for struct in STRUCTS.values()] + [ctypes.sizeof(c_int)] * len(ENUMS)
    assert printed == expected


@pytest.mark.parametrize("dtype", list(abi.DType))
def test_every_dtype_has_a_size(dtype: abi.DType) -> None:
    from horovod._native.operations import ITEM_SIZES

    digits = re.findall(r"\d+", dtype.name)
    assert ITEM_SIZES[dtype] == (int(digits[0]) // 8 if digits else 1)

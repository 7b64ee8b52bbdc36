"""Small functions that scripts and other packages import. Queries about the build use the one library."""

from __future__ import annotations

import functools
import importlib.util
import os
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from packaging import version

from horovod._native.library import library
from horovod.common.basics import HorovodBasics

T = TypeVar("T")
_cache = functools.cache


def get_ext_suffix() -> str:
    """Return the file name suffix of Python's extension modules, such as `.cpython-311-x86_64-linux-gnu.so`."""
    return sysconfig.get_config_var("EXT_SUFFIX") or ".so"


def check_extension(ext_name: str, ext_env_var: str, pkg_path: str, *args: str) -> None:
    """Raise ImportError if Horovod's library cannot be loaded; it serves every extension name."""
    library()


def check_installed_version(name: str, version: str, exception: Exception | None = None) -> None:
    """Raise `exception`, if given. The library does not depend on a framework's version, so none can mismatch."""
    if exception is not None:
        raise exception


@_cache
def extension_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Return whether Horovod can serve the framework: it is installed, and Horovod's library loads."""
    if importlib.util.find_spec(ext_base_name) is None:
        _say(verbose, f"{ext_base_name} is not installed")
        return False
    return _ask(lambda _: True, verbose) is not None


@_cache
def gpu_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Return whether the framework's GPU tensors can be used: it is installed, and the CUDA runtime is available."""
    return extension_available(ext_base_name, verbose) and bool(_ask(HorovodBasics.cuda_built, verbose))


@_cache
def mpi_built(verbose: bool = False) -> bool | None:
    """Return whether the MPI backend is available; None if Horovod's library does not load, as below."""
    return _ask(HorovodBasics.mpi_built, verbose)


@_cache
def gloo_built(verbose: bool = False) -> bool | None:
    """Return whether Horovod works without MPI."""
    return _ask(HorovodBasics.gloo_built, verbose)


@_cache
def nccl_built(verbose: bool = False) -> int | None:
    """Return the version code of NCCL, or 0."""
    return _ask(HorovodBasics.nccl_built, verbose)


@_cache
def ddl_built(verbose: bool = False) -> bool | None:
    """Return whether IBM's DDL is available."""
    return _ask(HorovodBasics.ddl_built, verbose)


@_cache
def ccl_built(verbose: bool = False) -> bool | None:
    """Return whether Intel's oneCCL is available."""
    return _ask(HorovodBasics.ccl_built, verbose)


def _ask(question: Callable[[HorovodBasics], T], verbose: bool) -> T | None:
    try:
        return question(HorovodBasics())
    except ImportError as error:
        _say(verbose, str(error))
        return None


def _say(verbose: bool, text: str) -> None:
    if verbose:
        print(text)


@contextmanager
def env(**kwargs: str | None) -> Iterator[None]:
    """Set environment variables, except those given as None, and restore them at the end."""
    values = {name: value for name, value in kwargs.items() if value is not None}
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def split_list(l: Sequence[T], n: int) -> list[Sequence[T]]:  # noqa: E741
    """Return `n` consecutive parts; the first `len(l) % n` are one longer, the last may be empty."""
    size, longer = divmod(len(l), n)
    starts = [i * size + min(i, longer) for i in range(n + 1)]
    return [l[starts[i] : starts[i + 1]] for i in range(n)]


def num_rank_is_power_2(num_rank: int) -> bool:
    """Return whether the number is a power of two."""
    return num_rank > 0 and num_rank & (num_rank - 1) == 0


def is_iterable(x: Any) -> bool:
    """Return whether `iter(x)` works."""
    if isinstance(x, Iterable):
        return True
    try:
        iter(x)
    except TypeError:
        return False
    return True


def is_version_greater_equal_than(ver: str, target: str) -> bool:
    """Return whether `ver` is `target`, which has the form x.y.z, or later."""
    if not isinstance(target, str) or target.count(".") != 2:
        raise ValueError(f"expected a version of the form x.y.z, not {target!r}")
    return version.parse(ver) >= version.parse(target)

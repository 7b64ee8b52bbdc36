"""Running functions and programs on many processes."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

__all__ = ["run"]


class _HorovodArgs:
    """The options of horovodrun as attributes, all unset; `horovod.runner.launch._run` runs the job they describe."""

    def __init__(self) -> None:
        from horovod.runner import options  # here, so that importing a framework's package stays quick

        self.__dict__.update(options.unset())
        self.num_proc: int | None = 1
        self.command: list[str] = []
        self.run_func: Callable[[], Any] | None = None
        self.executable: str | None = None

    def __setattr__(self, name: str, value: Any) -> None:
        self.__dict__[name] = value

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"horovodrun has no option {name}")


def run(
    func: Callable[..., Any],
    args: Iterable[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    num_proc: int = 1,
    min_num_proc: int | None = None,
    max_num_proc: int | None = None,
    slots: int | None = None,
    reset_limit: int | None = None,
    cooldown_range: tuple[int, int] | None = None,
    hosts: str | None = None,
    hostfile: str | None = None,
    host_discovery_script: str | None = None,
    start_timeout: int | None = None,
    ssh_port: int | None = None,
    ssh_identity_file: str | None = None,
    disable_cache: bool | None = None,
    output_filename: str | None = None,
    verbose: int | None = None,
    use_gloo: bool | None = None,
    use_mpi: bool | None = None,
    mpi_args: str | None = None,
    network_interface: str | None = None,
    network_interfaces: str | Collection[str] | None = None,
    executable: str | None = None,
    np: int | None = None,
    min_np: int | None = None,
    max_np: int | None = None,
) -> list[Any]:
    """Call `func(*args, **kwargs)` in `num_proc` processes that form a world, and return what each rank returned.

    The function is pickled with cloudpickle, so it may be a lambda, a closure, or defined in a notebook. It calls
    `hvd.init()` itself. The options are those of `horovodrun`; `executable` is the Python of the workers. RuntimeError
    says which rank failed, why, and shows its traceback; its `__cause__` is the worker's exception. An interrupt ends
    the job.
    """
    if np is not None:
        num_proc = _renamed("np", "num_proc", np)
    if min_np is not None:
        min_num_proc = _renamed("min_np", "min_num_proc", min_np)
    if max_np is not None:
        max_num_proc = _renamed("max_np", "max_num_proc", max_np)
    if network_interface is not None:
        network_interfaces = _renamed("network_interface", "network_interfaces", network_interface)
    if isinstance(network_interfaces, str):
        network_interfaces = network_interfaces.split(",")
    if hosts is not None and hostfile is not None:
        raise ValueError("hosts and hostfile exclude each other")
    if use_gloo and use_mpi:
        raise ValueError("use_gloo and use_mpi exclude each other")
    if num_proc < 1:
        raise ValueError(f"num_proc={num_proc}: expected 1 or more")
    if not callable(func):
        raise ValueError(f"expected a function, not a {type(func).__name__}")

    from horovod.runner import launch  # here, for the same reason

    wanted = _HorovodArgs()
    wanted.run_func = functools.partial(func, *args, **(kwargs or {}))
    wanted.executable = executable
    wanted.num_proc = num_proc
    wanted.min_num_proc = min_num_proc
    wanted.max_num_proc = max_num_proc
    wanted.slots = slots
    wanted.reset_limit = reset_limit
    wanted.cooldown_range = cooldown_range
    wanted.hosts = hosts
    wanted.hostfile = hostfile
    wanted.host_discovery_script = host_discovery_script
    wanted.start_timeout = start_timeout
    wanted.ssh_port = ssh_port
    wanted.ssh_identity_file = ssh_identity_file
    wanted.disable_cache = bool(disable_cache)
    wanted.output_filename = output_filename
    wanted.verbose = bool(verbose)
    wanted.use_gloo = bool(use_gloo)
    wanted.use_mpi = bool(use_mpi)
    wanted.mpi_args = mpi_args
    wanted.nics = set(network_interfaces) if network_interfaces else None
    return launch._run(wanted) or []


def _renamed(old: str, new: str, value: Any) -> Any:
    warnings.warn(f"horovod.run: {old} is deprecated, use {new}", DeprecationWarning, stacklevel=3)
    return value

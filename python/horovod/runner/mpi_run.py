"""Jobs that horovodrun starts with mpirun."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Collection, Mapping, Sequence

from horovod.runner.common.util.settings import BaseSettings
from horovod.runner.gloo_run import run_with_settings


def mpi_available(env: Mapping[str, str] | None = None) -> bool:
    """Whether mpirun can be called and reports its version."""
    return _version(env) is not None


def is_open_mpi(env: Mapping[str, str] | None = None) -> bool:
    """Whether mpirun is Open MPI's."""
    version = _version(env) or ""
    return "Open MPI" in version or "OpenRTE" in version


def is_spectrum_mpi(env: Mapping[str, str] | None = None) -> bool:
    """Whether mpirun is IBM Spectrum MPI's."""
    return "IBM Spectrum MPI" in (_version(env) or "")


def is_mpich(env: Mapping[str, str] | None = None) -> bool:
    """Whether mpirun is MPICH's (or one made from it)."""
    version = _version(env) or ""
    return "MPICH" in version or "HYDRA" in version


def is_intel_mpi(env: Mapping[str, str] | None = None) -> bool:
    """Whether mpirun is Intel MPI's."""
    return "Intel(R) MPI" in (_version(env) or "")


def mpi_run(
    settings: BaseSettings, nics: Collection[str] | None, env: Mapping[str, str], command: str | Sequence[str]
) -> None:
    """Run a command on all slots of `settings` with mpirun.

    RuntimeError with its exit code if it fails; ValueError if there is none.
    """
    run_with_settings(settings, nics, env, command, "--mpi", "mpirun")


def _version(env: Mapping[str, str] | None) -> str | None:
    path = shutil.which("mpirun", path=None if env is None else env.get("PATH"))
    if path is None:
        return None
    try:
        result = subprocess.run([path, "--version"], env=env, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout + result.stderr if result.returncode == 0 else None

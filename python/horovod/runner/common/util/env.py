"""Environment variables: the rank of this process, and which variables are forwarded to other hosts."""

from __future__ import annotations

import os
import re

LOG_LEVEL_STR = ("FATAL", "ERROR", "WARNING", "INFO", "DEBUG", "TRACE")
IGNORE_REGEXES = frozenset({"BASH_FUNC_.*", "OLDPWD", ".*CUDA_VISIBLE_DEVICES", "_HOROVOD_SECRET_KEY"})
KUBEFLOW_MPI_EXEC = "/etc/mpi/kubexec.sh"
_PLACES = (
    ("HOROVOD_RANK", "HOROVOD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
)


def is_exportable(v: str) -> bool:
    """Whether a variable of this name is forwarded to workers on other hosts."""
    return not any(re.fullmatch(pattern, v) for pattern in IGNORE_REGEXES)


def get_env_rank_and_size() -> tuple[int, int]:
    """Rank and size set by the launcher (ours, Open MPI's or another MPI's); (0, 1) without one.

    RuntimeError if only one of them is set.
    """
    for rank_name, size_name in _PLACES:
        rank, size = os.environ.get(rank_name), os.environ.get(size_name)
        if rank is not None and size is not None:
            return int(rank), int(size)
        if rank is not None or size is not None:
            raise RuntimeError(f"{rank_name} and {size_name} go together, but only one of them is set")
    return 0, 1

"""The LSF job of this process, from its environment."""

from __future__ import annotations

import os
import shutil
import subprocess


class LSFUtils:
    """Questions about an LSF job; RuntimeError outside of one."""

    @staticmethod
    def using_lsf() -> bool:
        """Whether this is an LSF job."""
        return "LSB_JOBID" in os.environ

    @staticmethod
    def get_compute_hosts() -> list[str]:
        """The hosts of the job, without the one it was submitted to if it only launches."""
        return list(LSFUtils._slots())

    @staticmethod
    def get_num_hosts() -> int:
        """How many of them there are."""
        return len(LSFUtils._slots())

    @staticmethod
    def get_num_cores() -> int:
        """Slots of the first host, which LSF takes for cores."""
        return next(iter(LSFUtils._slots().values()))

    @staticmethod
    def get_num_gpus() -> int:
        """GPUs of this host, as nvidia-smi counts them; 0 without it."""
        try:
            listing = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True, timeout=60)
        except (OSError, subprocess.SubprocessError):
            return 0
        return sum(line.startswith("GPU ") for line in listing.stdout.splitlines())

    @staticmethod
    def get_num_processes() -> int:
        """One per GPU of every host, or per core without GPUs."""
        gpus = LSFUtils.get_num_gpus()
        return LSFUtils.get_num_hosts() * gpus if gpus else sum(LSFUtils._slots().values())

    @staticmethod
    def _slots() -> dict[str, int]:
        words = os.environ.get("LSB_MCPU_HOSTS", "").split()  # "name slots name slots ..."
        if not LSFUtils.using_lsf() or not words:
            raise RuntimeError("this is not an LSF job: LSB_JOBID or LSB_MCPU_HOSTS is not set")
        slots = {name: int(count) for name, count in zip(words[::2], words[1::2], strict=True)}
        if len(slots) > 1 and next(iter(slots.values())) == 1:  # the first one only launches
            slots.pop(next(iter(slots)))
        return slots


def is_jsrun_installed() -> bool:
    """Whether jsrun can be called."""
    return shutil.which("jsrun") is not None

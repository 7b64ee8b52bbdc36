"""What is measured: our three layers and the peers, each with the command that runs it on a number of ranks."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "release"
BIN = BUILD / "benchmarks"
CPUS = sorted(os.sched_getaffinity(0))

# Ours, by layer: the collectives alone, through the C ABI, through Python.
RAW, CAPI, NUMPY = "raw", "C ABI", "numpy"
OURS = (RAW, CAPI, NUMPY)


@dataclass(frozen=True)
class Program:
    name: str
    command: Callable[[int], list[str]]  # of the number of ranks; sampler.h tells the arguments that follow
    environment: Mapping[str, str] = field(default_factory=dict)
    min_bytes: int = 0  # a variant that differs from its base only for large tensors starts here
    allreduce_only: bool = False

    @property
    def ours(self) -> bool:
        return self.name in OURS


# glibc gives large temporary buffers back to the kernel with every free(). MPI libraries then fault in all of their
# pages again in every large reduction, half of their time; told to keep them, they show what they can do.
KEEP = {
    "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 34),
    "MALLOC_TOP_PAD_": str(1 << 26),
}
UCX = ["--mca", "pml", "ucx", "--mca", "osc", "ucx", "--mca", "pml_ucx_tls", "any", "--mca", "pml_ucx_devices", "any"]
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def _open_mpi(*options: str) -> Callable[[int], list[str]]:
    def command(ranks: int) -> list[str]:
        # --oversubscribe also makes it yield its core while it waits.
        placement = ["--bind-to", "core"] if ranks <= len(CPUS) else ["--oversubscribe", "--bind-to", "none"]
        return ["mpirun.openmpi", "-np", str(ranks), *placement, *options, str(BIN / "bench_openmpi")]

    return command


def _mpich(ranks: int) -> list[str]:
    placement = ["-bind-to", "core"] if ranks <= len(CPUS) else []
    return ["mpiexec.mpich", *placement, "-np", str(ranks), str(BIN / "bench_mpich")]


def _gloo(algorithm: str) -> Program:
    return Program(
        f"gloo {algorithm}",
        lambda _: [str(BIN / "bench_gloo")],
        {"BENCH_GLOO_ALLREDUCE": algorithm},
        allreduce_only=algorithm != "ring",
    )


def _ours() -> list[Program]:
    library = str(BUILD / "src" / "libhorovod.so")
    python = {
        "HOROVOD_LIBRARY": library,
        "BENCH_TEAM": str(BIN / "libbench_team_c.so"),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT / "python"), os.environ.get("PYTHONPATH")])),
    }
    return [
        Program(RAW, lambda _: [str(BIN / "bench_raw")]),
        Program(CAPI, lambda _: [str(BIN / "bench_capi")]),
        Program(NUMPY, lambda _: [sys.executable, str(ROOT / "benchmarks" / "numpy_bench.py")], python),
    ]


def _peers() -> list[Program]:
    peers = []
    if shutil.which("mpirun.openmpi") and (BIN / "bench_openmpi").exists():
        peers += [
            Program("ompi", _open_mpi(), AS_ROOT),
            Program("ompi keep", _open_mpi(), AS_ROOT | KEEP, min_bytes=1 << 20),
            Program("ompi ucx keep", _open_mpi(*UCX), AS_ROOT | KEEP),
        ]
    if shutil.which("mpiexec.mpich") and (BIN / "bench_mpich").exists():
        peers += [Program("mpich", _mpich), Program("mpich keep", _mpich, KEEP, min_bytes=16 << 20)]
    if (BIN / "bench_gloo").exists():
        peers += [_gloo("ring"), _gloo("halving_doubling")]
    return peers


def installed() -> list[Program]:
    """Everything that was built, in the order of a round."""
    return _ours() + _peers()

"""What is measured: our layers and the peers, each with the processes that make it up at a place."""

from __future__ import annotations

import os
import secrets
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from machine import BIN, BUILD, CPUS, ROOT
from places import FIRST_ADDRESS, HOSTS, NETWORK, Place, Seat, seats

# Ours, by layer: the collectives alone, through the C ABI, through Python.
RAW, CAPI, NUMPY = "raw", "C ABI", "numpy"
OURS = (RAW, CAPI, NUMPY)


@dataclass(frozen=True)
class Process:
    command: list[str]  # sampler.h tells the arguments that follow
    host: str | None = None  # of the test bed; None: the machine itself
    environment: Mapping[str, str] = field(default_factory=dict)


Start = Callable[[Place, int], list[Process]]  # at a place, with so many ranks


@dataclass(frozen=True)
class Program:
    name: str
    start: Start
    min_bytes: int = 0  # a variant that differs from its base only for large tensors starts here
    collectives: frozenset[str] | None = None  # None: all

    @property
    def ours(self) -> bool:
        return self.name in OURS


ALLREDUCE = frozenset({"allreduce"})
WIRE = frozenset({"wire"})

# glibc gives large temporary buffers back to the kernel with every free(). MPI libraries then fault in all of their
# pages again in every large reduction, half of their time; told to keep them, they show what they can do.
KEEP = {
    "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 34),
    "MALLOC_TOP_PAD_": str(1 << 26),
}


def _mca(**settings: str) -> list[str]:
    return [word for name, value in settings.items() for word in ("--mca", name, value)]


UCX = _mca(pml="ucx", osc="ucx", pml_ucx_tls="any", pml_ucx_devices="any")
LOOPBACK = _mca(btl="tcp,self", btl_tcp_if_include="lo")
BETWEEN_HOSTS = _mca(btl_tcp_if_include=NETWORK, oob_tcp_if_include=NETWORK)
# A ring whose messages are cut into pieces of 256 KiB, so that reducing and sending overlap: its best for large ones.
SEGMENTED = _mca(
    coll_tuned_use_dynamic_rules="1",
    coll_tuned_allreduce_algorithm="5",
    coll_tuned_allreduce_algorithm_segmentsize=str(256 << 10),
)
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def _alone(command: list[str], environment: Mapping[str, str] | None = None) -> Start:
    """A program that starts its ranks itself."""
    return lambda _place, _ranks: [Process(command, environment=environment or {})]


def _each_rank(command: list[str], environment: Mapping[str, str] | None = None) -> Start:
    """A process per rank, in the rank's host."""

    def start(place: Place, ranks: int) -> list[Process]:
        address = FIRST_ADDRESS if place.kind == "hosts" else "127.0.0.1"
        port = 1024 + os.getpid() % 60000
        key = secrets.token_hex(32)

        def variables(seat: Seat) -> dict[str, str]:
            return {**(environment or {}), **seat.world(ranks, address, port, key), "BENCH_NIC": seat.nic}

        return [Process(command, seat.host, variables(seat)) for seat in seats(place, ranks)]

    return start


def _open_mpi(*options: str, keep: bool = False) -> Start:
    program = str(BIN / "bench_openmpi")

    def start(place: Place, ranks: int) -> list[Process]:
        environment = AS_ROOT | (KEEP if keep else {})
        crowded = ranks > len(CPUS)
        if place.kind != "hosts":
            # --oversubscribe also makes it yield its core while it waits.
            placement = ["--oversubscribe", "--bind-to", "none"] if crowded else ["--bind-to", "core"]
            command = ["mpirun.openmpi", "-np", str(ranks), *placement, *options, program]
            return [Process(command, environment=environment)]
        # It cannot know that the hosts share their cores: our program binds, and yielding has to be asked for.
        hosts = ",".join(f"{name}:{ranks // len(HOSTS)}" for name, _ in HOSTS)
        placement = ["--bind-to", "none", *(_mca(mpi_yield_when_idle="1") if crowded else [])]
        passed = [word for name in ("BENCH_BLOCK", "BENCH_CPUS", "BENCH_PIN") for word in ("-x", name)]
        command = ["mpirun.openmpi", "-np", str(ranks), "-H", hosts, *placement, *passed, *BETWEEN_HOSTS]
        return [Process([*command, *options, program], HOSTS[0][0], environment)]

    return start


def _mpich(environment: Mapping[str, str]) -> Start:
    def start(_place: Place, ranks: int) -> list[Process]:
        placement = ["-bind-to", "core"] if ranks <= len(CPUS) else []
        command = ["mpiexec.mpich", *placement, "-np", str(ranks), str(BIN / "bench_mpich")]
        return [Process(command, environment=environment)]

    return start


def _gloo(algorithm: str, how: Callable[[list[str], Mapping[str, str]], Start]) -> Program:
    start = how([str(BIN / "bench_gloo")], {"BENCH_GLOO_ALLREDUCE": algorithm})
    return Program(f"gloo {algorithm}", start, collectives=None if algorithm == "ring" else ALLREDUCE)


def _iperf3() -> Program:
    """From the first host to the second: what the wire between them can carry."""
    command = [sys.executable, str(ROOT / "benchmarks" / "peers" / "wire.py"), HOSTS[1][0]]
    return Program("iperf3", lambda _place, _ranks: [Process(command, HOSTS[0][0])], collectives=WIRE)


def _ours() -> list[Program]:
    python = {
        "HOROVOD_LIBRARY": str(BUILD / "src" / "libhorovod.so"),
        "BENCH_TEAM": str(BIN / "libbench_team_c.so"),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT / "python"), os.environ.get("PYTHONPATH")])),
    }
    return [
        Program(RAW, _alone([str(BIN / "bench_raw")])),
        Program(CAPI, _alone([str(BIN / "bench_capi")])),
        Program(NUMPY, _alone([sys.executable, str(ROOT / "benchmarks" / "numpy_bench.py")], python)),
    ]


def _ours_over_tcp() -> list[Program]:
    """Processes like Gloo's, one per rank, that find their world in HOROVOD_* (Seat.world)."""
    return [Program(RAW, _each_rank([str(BIN / "bench_raw")])), Program(CAPI, _each_rank([str(BIN / "bench_capi")]))]


def installed(kind: str) -> list[Program]:
    """Everything that was built for this kind of place, in the order of a round."""
    mpich = shutil.which("mpiexec.mpich") and (BIN / "bench_mpich").exists()
    gloo = (BIN / "bench_gloo").exists()
    found = _ours() if kind == "shm" else _ours_over_tcp()
    if shutil.which("mpirun.openmpi") and (BIN / "bench_openmpi").exists():
        found += {
            "shm": [
                Program("ompi", _open_mpi()),
                Program("ompi keep", _open_mpi(keep=True), min_bytes=1 << 20),
                Program("ompi ucx keep", _open_mpi(*UCX, keep=True)),
            ],
            "tcp": [
                Program("ompi tcp", _open_mpi(*LOOPBACK)),
                Program("ompi tcp seg-ring", _open_mpi(*LOOPBACK, *SEGMENTED), collectives=ALLREDUCE),
            ],
            "hosts": [
                Program("ompi", _open_mpi()),
                Program("ompi seg-ring", _open_mpi(*SEGMENTED), collectives=ALLREDUCE),
            ],
        }[kind]
    if mpich and kind == "shm":
        found += [Program("mpich", _mpich({})), Program("mpich keep", _mpich(KEEP), min_bytes=16 << 20)]
    if gloo:
        how = _each_rank if kind == "hosts" else _alone
        found += [_gloo("ring", how), _gloo("halving_doubling", how)]
    if kind == "hosts" and shutil.which("iperf3"):
        found += [_iperf3()]
    return found

"""The MPIs that are tested, side by side on one machine, and how a command is run under the mpirun of each.

python tests/python/mpi/flavours.py mpich 3 mpi command...      # three ranks, data by MPI
python tests/python/mpi/flavours.py openmpi 2 engine command... # MPI is the controller, the engine carries the data

The tests run with Debian's Open MPI and MPICH, or with those that FLAVOURS names: FLAVOURS="openmpi5 mpich5" takes the
newer ones, which come as Python packages.
"""

from __future__ import annotations

import fcntl
import functools
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SOURCE = ROOT / "src/backends/mpi/shim/hvd_mpi_shim.c"
BUILT = ROOT / "build/mpi"


@dataclass(frozen=True)
class Flavour:
    name: str
    version: str  # the beginning of what it calls itself
    is_open_mpi: bool
    options: tuple[str, ...]  # to run more ranks than there are cores, none of them bound to one
    survive: tuple[str, ...]  # to leave the other ranks alone when one is killed
    home: Path | None = None  # the folder it is in; None: Debian's, whose programs have names that end with its own

    def program(self, name: str) -> str | None:
        return shutil.which(f"{self.home}/bin/{name}" if self.home else f"{name}.{self.name}")

    def why_not(self) -> str:
        if self.program("mpirun") and self.program("mpicc"):
            return ""
        remedy = f"make {self.home.name}/stamp" if self.home else "tools/packages.sh mpi"
        return f"{self.name} is not installed ({remedy})"

    def chosen(self) -> dict[str, str]:
        """The variables that choose it among several MPIs, for horovodrun."""
        return {"HOROVOD_MPI_HOME": str(self.home)} if self.home else {"HOROVOD_MPIRUN": f"mpirun.{self.name}"}

    @functools.cached_property
    def plugin(self) -> Path:
        """Compiled as horovodrun --build-mpi does it; by one process at a time, again when the source has changed."""
        target = BUILT / self.name / "libhorovod_mpi.so"
        target.parent.mkdir(parents=True, exist_ok=True)
        sources = [SOURCE, SOURCE.with_suffix(".h")]
        with (target.parent / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not target.exists() or target.stat().st_mtime < max(each.stat().st_mtime for each in sources):
                command = [self.program("mpicc") or "", "-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-O2"]
                subprocess.run([*command, "-fPIC", "-shared", "-o", str(target), str(SOURCE)], check=True)
        return target

    def environment(self) -> dict[str, str]:
        """For ranks; without what another launcher around this process has set."""
        others = ("HOROVOD_", "_HOROVOD_", "OMPI_", "PMI", "PMIX", "PRTE_", "SLURM")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(others)}
        if "HOROVOD_LIBRARY" in os.environ:
            kept["HOROVOD_LIBRARY"] = os.environ["HOROVOD_LIBRARY"]
        if self.home or not self.is_open_mpi:  # else mpi4py finds it by itself
            folder = self.home / "lib" if self.home else self._link()
            kept["MPI4PY_MPIABI"] = "openmpi" if self.is_open_mpi else "mpich"
            kept["LD_LIBRARY_PATH"] = f"{folder}:{os.environ.get('LD_LIBRARY_PATH', '')}"
        return {
            **kept,
            **{f"{launcher}_ALLOW_RUN_AS_ROOT{end}": "1" for launcher in ("OMPI", "PRTE") for end in ("", "_CONFIRM")},
            "OMPI_MCA_mpi_yield_when_idle": "1",  # the machine is not ours alone; MPICH does so by itself
            "UCX_TLS": "tcp,self",  # by shared memory, UCX ends ranks of MPICH whose peer was killed
            "HOROVOD_MPI_LIBRARY": str(self.plugin),
            "HOROVOD_START_TIMEOUT": "60",
            "PYTHONPATH": str(ROOT / "python"),
        }

    def _link(self) -> Path:
        """The file name that MPICH itself gives its library, and that mpi4py looks for; Debian gives it another."""
        folder = BUILT / self.name / "lib"
        folder.mkdir(parents=True, exist_ok=True)
        link = folder / "libmpi.so.12"
        found = subprocess.run(["ldd", str(self.plugin)], capture_output=True, text=True, check=True).stdout
        library = next(line.split("=>")[1].split()[0] for line in found.splitlines() if "libmpich.so" in line)
        temporary = folder / f"link.{os.getpid()}"
        temporary.symlink_to(library)
        temporary.replace(link)
        return folder

    def command(self, ranks: int, command: list[str], *options: str) -> list[str]:
        return [self.program("mpirun") or "", *self.options, *options, "-np", str(ranks), *command]


OPENMPI = Flavour("openmpi", "Open MPI", True, ("--oversubscribe", "--bind-to", "none"), ("--enable-recovery",))
MPICH = Flavour("mpich", "MPICH", False, (), ("-disable-auto-cleanup",))
OPENMPI5 = Flavour(
    "openmpi5",
    "Open MPI v5",
    True,
    ("--map-by", "slot:OVERSUBSCRIBE", "--bind-to", "none"),
    ("--enable-recovery",),
    ROOT / ".venv-openmpi5",
)
MPICH5 = Flavour("mpich5", "MPICH", False, (), ("-disable-auto-cleanup",), ROOT / ".venv-mpich5")
ALL = {flavour.name: flavour for flavour in (OPENMPI, MPICH, OPENMPI5, MPICH5)}
FLAVOURS = {name: ALL[name] for name in os.environ.get("FLAVOURS", "openmpi mpich").split()}


def carried_by(data: str) -> dict[str, str]:
    """The variables that choose what moves the data: mpi or engine."""
    return {"HOROVOD_CONTROLLER": "mpi", "HOROVOD_CPU_OPERATIONS": "mpi" if data == "mpi" else "gloo"}


def main() -> int:
    flavour, ranks, data = ALL[sys.argv[1]], int(sys.argv[2]), sys.argv[3]
    if reason := flavour.why_not():
        sys.exit(reason)
    own = {name: value for name, value in os.environ.items() if name.startswith("HOROVOD_")}
    environment = flavour.environment() | carried_by(data) | own
    return subprocess.run(flavour.command(ranks, sys.argv[4:]), env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())

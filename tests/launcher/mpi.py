"""The MPIs of this machine, a package of Horovod's with a library to build for them, and PATHs without any MPI."""

import os
import pathlib
import shutil

import pytest

KINDS = ("openmpi", "mpich")  # as Debian names them: mpirun.openmpi, mpicc.openmpi

# Stands for Horovod's own MPI library.
SOURCE = """
#include <mpi.h>
#include "hvd_mpi_shim.h"
const char* hvd_test_flavour(void) {
#ifdef OPEN_MPI
  return "openmpi";
#else
  return "mpich";
#endif
}
int hvd_test_rank(void) { int rank = -1; MPI_Comm_rank(MPI_COMM_WORLD, &rank); return rank; }
"""


def need(kind):
    """Skips the test without this MPI."""
    for program in (f"mpirun.{kind}", f"mpicc.{kind}"):
        if shutil.which(program) is None:
            pytest.skip(f"there is no {program}: tools/packages.sh mpi installs it")


def make_package(folder, source=SOURCE):
    """A folder as that of libhorovod.so; returns what HOROVOD_LIBRARY has to be."""
    (folder / "mpi").mkdir(parents=True)
    (folder / "mpi" / "hvd_mpi_shim.c").write_text(source)
    (folder / "mpi" / "hvd_mpi_shim.h").write_text("")
    return str(folder / "libhorovod.so")


def path_without_mpi(folder, path=None):
    """Links to all programs of a path, or of PATH, but those of MPI."""
    folder.mkdir()
    for part in (path or os.environ["PATH"]).split(":"):
        for program in pathlib.Path(part).glob("*"):
            if not program.name.startswith(("mpi", "orte", "jsrun")) and not (folder / program.name).exists():
                (folder / program.name).symlink_to(program)
    return str(folder)

"""The ranks of a process for Lightning, from Horovod."""

from __future__ import annotations

from typing import TYPE_CHECKING

from horovod.torch import mpi_ops

if TYPE_CHECKING:
    from lightning_fabric.plugins.environments.cluster_environment import ClusterEnvironment
else:
    ClusterEnvironment = object  # __init__.py chooses between Lightning's two classes


class EnvironmentMethods(ClusterEnvironment):
    """Mixed in before Lightning's ClusterEnvironment. The processes already exist; the launcher defines the world."""

    @property
    def creates_processes_externally(self) -> bool:
        return True

    @property
    def main_address(self) -> str:
        """Not used: Horovod has connected the ranks already."""
        return "127.0.0.1"

    @property
    def main_port(self) -> int:
        return 0

    @staticmethod
    def detect() -> bool:
        return False  # it is used only with an explicit strategy

    def world_size(self) -> int:
        return mpi_ops.size()

    def set_world_size(self, size: int) -> None:
        """The size is what it is."""

    def global_rank(self) -> int:
        return mpi_ops.rank()

    def set_global_rank(self, rank: int) -> None:
        """The rank is what it is."""

    def local_rank(self) -> int:
        return mpi_ops.local_rank()

    def node_rank(self) -> int:
        return mpi_ops.cross_rank()

"""mpi4py's communicators as worlds and as process sets."""

from __future__ import annotations

from typing import Any

import pytest
from flavours import Flavour
from mpi_jobs import needs_mpi4py, run
from ranks import failure, say

pytestmark = needs_mpi4py
hvd: Any = None  # in the bodies it is horovod.numpy, by the prelude
np: Any = None


@pytest.mark.parametrize("data", ["mpi", "engine", None])
def test_the_world_of_a_communicator(flavour: Flavour, data: str | None) -> None:
    def body() -> None:
        from mpi4py import MPI

        hvd.init(comm=MPI.COMM_WORLD)
        assert hvd.global_process_set.mpi_comm is MPI.COMM_WORLD
        assert (hvd.rank(), hvd.size()) == (MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size)
        assert hvd.mpi_enabled() and hvd.mpi_built() and hvd.gloo_built() and hvd.mpi_threads_supported()
        # Both kinds of traffic, one inside the other.
        for step in range(20):
            handle = hvd.allreduce_async(np.full(1000, hvd.rank() + 1.0), op=hvd.Sum, name=f"step{step}")
            assert MPI.COMM_WORLD.allreduce(1) == hvd.size()
            assert hvd.synchronize(handle)[999] == 6.0
        hvd.shutdown()
        assert hvd.global_process_set.mpi_comm is None and not hvd.mpi_enabled()
        MPI.COMM_WORLD.Barrier()
        say("done")

    assert run(flavour, 3, body, data=data).lines == ["done"] * 3


def test_every_part_of_a_split_is_a_world(flavour: Flavour) -> None:
    def body() -> None:
        from mpi4py import MPI

        whole = MPI.COMM_WORLD
        for turn in range(2):  # the same world twice, and the ranks of each in reverse order
            hvd.init(comm=whole.Split(whole.rank % 2, -whole.rank))
            total = hvd.allreduce(np.array([float(whole.rank)]), op=hvd.Sum)
            say(f"{turn} {whole.rank}: {hvd.rank()} of {hvd.size()}, {total[0]:g}")
            hvd.shutdown()
            whole.Barrier()

    places = ["0: 1 of 2, 2", "1: 0 of 1, 1", "2: 0 of 2, 2"]
    assert run(flavour, 3, body, data="mpi").lines == [f"{turn} {place}" for turn in range(2) for place in places]


def test_a_list_of_ranks_is_a_world_and_the_others_are_alone(flavour: Flavour) -> None:
    def body() -> None:
        hvd.init(comm=[2, 0])
        total = hvd.allreduce(np.ones(3), op=hvd.Sum)
        say(f"{hvd.rank()} of {hvd.size()}, {total[0]:g}")

    job = run(flavour, 3, body, data="mpi")
    assert job.lines == ["0 of 1, 1", "0 of 2, 2", "1 of 2, 2"]
    assert job.errors.count("comm does not name this process, which is rank 1 of MPI") == 1


def test_sets_of_communicators_come_before_those_of_ranks(flavour: Flavour) -> None:
    def body() -> None:
        from mpi4py import MPI

        whole = MPI.COMM_WORLD
        of_ranks, of_split = hvd.ProcessSet([0, 1]), hvd.ProcessSet(whole.Split(int(whole.rank == 1)))
        assert of_split.ranks is None and of_split.size() is None
        hvd.init(comm=whole, process_sets=[of_ranks, of_split])
        assert of_ranks.process_set_id == 3
        mine = [1] if whole.rank == 1 else [0, 2]
        assert of_split.ranks == mine and of_split.process_set_id == (2 if whole.rank == 1 else 1)
        assert of_split.included() and of_split.size() == len(mine)
        total = hvd.allreduce(np.array([whole.rank + 1.0]), op=hvd.Sum, process_set=of_split)
        assert total[0] == sum(rank + 1 for rank in mine)
        hvd.init(comm=whole, process_sets=[of_split])  # binds again
        assert f"ranks={mine}, mpi_comm=<mpi4py" in str(of_split)
        hvd.barrier()  # a rank that ends takes the world with it, in which others may still compute
        say("done")

    assert run(flavour, 3, body, data="mpi").lines == ["done"] * 3


def test_what_a_communicator_cannot_be_used_for(flavour: Flavour) -> None:
    def body() -> None:
        from mpi4py import MPI

        some = hvd.ProcessSet(MPI.COMM_WORLD.Dup())
        say(failure(lambda: hvd.init(process_sets=[some])))
        say(failure(lambda: hvd.init(comm=MPI.COMM_NULL)))
        say(failure(lambda: hvd.init(comm=7)))
        say(failure(lambda: hvd.ProcessSet(7)))
        hvd.init(comm=MPI.COMM_WORLD, process_sets="dynamic")
        say(failure(lambda: hvd.add_process_set(some)))
        say(failure(lambda: hvd.init(comm=MPI.COMM_WORLD, process_sets=[some])))

    lines = run(flavour, 1, body).lines
    assert [line.split(":")[0] for line in lines].count("ValueError") == 3, lines
    assert sum("NotImplementedError" in line for line in lines) == 2, lines
    assert "no error" in lines  # the set of the whole world, bound to a world that exists

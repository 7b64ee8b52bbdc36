"""Process sets, added while running and given to init."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import horovod.numpy as hvd

pytestmark = pytest.mark.usefixtures("numbered_anew")


@pytest.fixture
def halves() -> Iterator[tuple[hvd.ProcessSet, hvd.ProcessSet]]:
    """The ranks with even and with odd numbers."""
    if hvd.size() < 3:
        pytest.skip("needs three ranks for two sets that are not the world")
    even, odd = hvd.add_process_set(range(0, hvd.size(), 2)), hvd.add_process_set(list(range(1, hvd.size(), 2)))
    yield even, odd
    assert hvd.remove_process_set(even) and hvd.remove_process_set(odd)


def test_members(halves: tuple[hvd.ProcessSet, hvd.ProcessSet]) -> None:
    assert [each.process_set_id for each in halves] == [1, 2]
    for parity, each in enumerate(halves):
        members = list(range(parity, hvd.size(), 2))
        assert each.ranks == members and each.size() == len(members)
        assert each.included() is (hvd.rank() in members)
        if each.included():
            assert each.rank() == members.index(hvd.rank())
        else:
            with pytest.raises(ValueError):
                each.rank()
    assert hvd.global_process_set.ranks == list(range(hvd.size()))
    assert hvd.global_process_set.size() == hvd.size() and hvd.global_process_set.rank() == hvd.rank()
    assert str(halves[0]).startswith("ProcessSet(process_set_id=1, ranks=[0, 2")


def test_every_verb_within_a_set(halves: tuple[hvd.ProcessSet, hvd.ProcessSet]) -> None:
    """Both sets use the same names at the same time."""
    mine = halves[hvd.rank() % 2]
    ranks = mine.ranks or []
    value = np.array([float(hvd.rank())])
    assert hvd.allreduce(value, name="s", op=hvd.Sum, process_set=mine) == sum(ranks)
    assert hvd.allreduce(value, name="s", process_set=mine) == sum(ranks) / len(ranks)
    np.testing.assert_array_equal(hvd.allgather(value, name="s", process_set=mine), ranks)
    assert hvd.broadcast(value, ranks[-1], name="s", process_set=mine) == ranks[-1]
    received = hvd.alltoall(np.full(len(ranks), value[0]), name="s", process_set=mine)
    np.testing.assert_array_equal(received, ranks)
    own = hvd.reducescatter(np.ones(len(ranks)), name="s", op=hvd.Sum, process_set=mine)
    np.testing.assert_array_equal(own, [len(ranks)])
    group = hvd.grouped_allreduce([value, value], name="s", op=hvd.Max, process_set=mine)
    assert group[0] == group[1] == ranks[-1]
    assert hvd.broadcast_object({"from": hvd.rank()}, ranks[0], process_set=mine) == {"from": ranks[0]}
    hvd.barrier(process_set=mine)


def test_a_rank_outside_is_told_so_at_once(halves: tuple[hvd.ProcessSet, hvd.ProcessSet]) -> None:
    others = halves[1 - hvd.rank() % 2]
    for call in (
        lambda: hvd.allreduce(np.ones(2), name="outside", process_set=others),
        lambda: hvd.allgather(np.ones(2), name="outside", process_set=others),
        lambda: hvd.barrier(process_set=others),
    ):
        with pytest.raises(ValueError):
            call()
    mine = halves[hvd.rank() % 2]
    with pytest.raises(ValueError):
        hvd.broadcast(np.ones(2), (others.ranks or [])[0], name="outside", process_set=mine)
    assert hvd.allreduce(np.array(1.0), name="outside", process_set=mine) == 1.0


def test_a_set_does_not_wait_for_others() -> None:
    """Rank 0 finishes operations of its own set while all others wait for it in an operation of the world."""
    if hvd.size() == 1:
        pytest.skip("needs two ranks")
    alone = hvd.add_process_set([0])
    if hvd.rank() == 0:
        for _ in range(10):
            assert hvd.allreduce(np.array(5.0), name="alone", process_set=alone) == 5.0
    assert hvd.allreduce(np.array(1.0), name="together", op=hvd.Sum) == hvd.size()
    assert hvd.remove_process_set(alone)


def test_ids_are_used_again_first_removed_first() -> None:
    if hvd.size() < 3:
        pytest.skip("needs three ranks for enough sets")
    sets = [hvd.add_process_set([rank]) for rank in range(3)]
    assert [each.process_set_id for each in sets] == [1, 2, 3]
    for each in (sets[1], sets[0]):
        assert hvd.remove_process_set(each)
        assert each.process_set_id is None and each.size() is None and each.rank() is None
        with pytest.raises(ValueError, match="not registered"):
            hvd.allreduce(np.ones(1), process_set=each)
        assert not hvd.remove_process_set(each)
    added = [hvd.add_process_set(sets[0]), hvd.add_process_set([0, 1]), hvd.add_process_set(sets[1])]
    assert [each.process_set_id for each in added] == [2, 1, 4]
    assert added[0] is sets[0]
    for each in [*added, sets[2]]:
        if each.included():
            assert hvd.allreduce(np.array(1.0), name="again", op=hvd.Sum, process_set=each) == each.size()
        assert hvd.remove_process_set(each)


def test_sets_that_cannot_be_added() -> None:
    size = hvd.size()
    for wrong in (list(range(size)), [], [0, 0], [size], [-1]):
        with pytest.raises(ValueError):
            hvd.add_process_set(wrong)
    if size > 1:
        first = hvd.add_process_set([0])
        with pytest.raises(ValueError):
            hvd.add_process_set([0])
        assert hvd.remove_process_set(first)
    assert hvd.remove_process_set(hvd.global_process_set) is False
    assert hvd.allreduce(np.array(1.0), name="still works", op=hvd.Sum) == size


def test_ranks_that_add_different_sets_all_get_an_error() -> None:
    if hvd.size() == 1:
        pytest.skip("needs two ranks")
    with pytest.raises(ValueError):
        hvd.add_process_set([hvd.rank() % 2])
    assert hvd.allreduce(np.array(1.0), name="still works", op=hvd.Sum) == hvd.size()


def test_sets_given_to_init() -> None:
    if hvd.size() == 1:
        pytest.skip("needs two ranks")
    last, first = hvd.ProcessSet([hvd.size() - 1]), hvd.ProcessSet([0])
    hvd.barrier()
    hvd.shutdown()
    hvd.init(process_sets=[last, first])
    assert (last.process_set_id, first.process_set_id) == (1, 2)
    for each in (last, first):
        if each.included():
            assert hvd.allreduce(np.array(3.0), name="static", op=hvd.Sum, process_set=each) == 3.0
    bound_again = hvd.ProcessSet([0])
    hvd.init(process_sets=[bound_again])
    assert bound_again.process_set_id == 2
    with pytest.raises(KeyError):
        hvd.init(process_sets=[hvd.ProcessSet([77])])
    hvd.barrier()
    hvd.shutdown()
    assert last.process_set_id is None
    hvd.init(process_sets="dynamic")
    with pytest.raises(ValueError, match="not registered"):
        hvd.barrier(process_set=last)

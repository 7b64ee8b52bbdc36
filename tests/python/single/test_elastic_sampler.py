"""ElasticSampler and ElasticDataLoader in any sequence of worlds: each rank of a pretended world has its own."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from horovod.common.elastic import sampler  # noqa: E402
from horovod.torch.elastic import ElasticDataLoader, ElasticSampler  # noqa: E402


class Place:
    """The rank and size that the sampler under test gets."""

    rank = 0
    size = 1


@pytest.fixture(autouse=True)
def pretended_world(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler, "rank", lambda: Place.rank)
    monkeypatch.setattr(sampler, "size", lambda: Place.size)


@dataclass
class World:
    """What happens in one world: so many steps, the last commit after some of them, and how it ends."""

    size: int
    steps: int
    commit_after: int  # steps; 0: none in this world
    fails: bool  # back to the last commit; otherwise hosts changed, right after a commit


worlds = st.lists(
    st.builds(
        World, size=st.integers(1, 5), steps=st.integers(0, 4), commit_after=st.integers(0, 4), fails=st.booleans()
    ),
    max_size=6,
)


def as_rank(rank: int, size: int) -> None:
    Place.rank, Place.size = rank, size


def train(samples: int, batch: int, schedule: list[World], fill_up: bool) -> list[int]:
    """An epoch through all worlds of the schedule and one that ends it; the samples that count, in any order."""
    processed: list[int] = []
    committed: list[int] = []
    state: dict[str, Any] = {"epoch": 0, "processed_num": 0}
    for world in [*schedule, World(size=2, steps=1_000_000, commit_after=0, fails=False)]:
        loaders = []
        for rank in range(world.size):  # newcomers and survivors alike: they take over the state of one of them
            as_rank(rank, world.size)
            loader = ElasticDataLoader(range(samples), batch, ElasticSampler(range(samples), seed=7, fill_up=fill_up))
            loader.sampler.load_state_dict(state)
            loaders.append(loader)
        iterators = []
        for rank, loader in enumerate(loaders):
            as_rank(rank, world.size)
            iterators.append(iter(loader))
        step = 0
        while step < world.steps:
            batches = []
            for rank, iterator in enumerate(iterators):
                as_rank(rank, world.size)
                batches.append(next(iterator, "over"))
            ended = [isinstance(each, str) for each in batches]
            assert all(ended) or not any(ended), "ranks have different numbers of batches"
            if ended[0]:
                break
            processed += itertools.chain.from_iterable(each.tolist() for each in batches if each is not None)
            assert len({loader.sampler.processed_num for loader in loaders}) == 1
            step += 1
            if step == world.commit_after or (step == world.steps and not world.fails):
                committed, state = list(processed), loaders[-1].sampler.state_dict()
        if world.fails:
            processed = list(committed)
        else:
            committed, state = list(processed), loaders[0].sampler.state_dict()
    return processed


@settings(max_examples=150, deadline=None)
@given(samples=st.integers(0, 60), batch=st.integers(1, 7), schedule=worlds)
def test_without_filling_up_every_sample_counts_exactly_once(samples: int, batch: int, schedule: list[World]) -> None:
    assert Counter(train(samples, batch, schedule, fill_up=False)) == Counter(range(samples))


@settings(max_examples=150, deadline=None)
@given(samples=st.integers(0, 60), batch=st.integers(1, 7), schedule=worlds)
def test_filling_up_repeats_at_most_one_sample_per_rank(samples: int, batch: int, schedule: list[World]) -> None:
    counted = Counter(train(samples, batch, schedule, fill_up=True))
    assert set(counted) == set(range(samples))
    most = max([2, *(world.size for world in schedule)])
    assert counted.total() - samples < most


def test_a_rank_for_which_nothing_is_left_gets_none() -> None:
    shares = []
    for rank in range(2):
        as_rank(rank, 2)
        loader = ElasticDataLoader(torch.arange(9), 4, ElasticSampler(range(9), shuffle=False, fill_up=False))
        assert len(loader) == 2
        shares.append([None if each is None else each.tolist() for each in loader])
        assert len(loader) == 0 and list(loader) == []
        loader.sampler.set_epoch(1)
        assert len(loader) == 2
    assert shares == [[[0, 2, 4, 6], [8]], [[1, 3, 5, 7], None]]


def test_a_loop_that_was_left_goes_on() -> None:
    as_rank(0, 1)
    loader = ElasticDataLoader(torch.arange(6), 2, ElasticSampler(range(6), shuffle=False), num_workers=1)
    next(iter(loader))
    assert [each.tolist() for each in loader] == [[2, 3], [4, 5]]


def test_what_the_sampler_decides_is_refused() -> None:
    with pytest.raises(ValueError, match="drop_last, shuffle"):
        ElasticDataLoader(range(3), 1, shuffle=True, drop_last=True)
    with pytest.raises(ValueError, match="batch_size"):
        ElasticDataLoader(range(3), 0)

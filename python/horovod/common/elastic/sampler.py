"""Divides a dataset over the ranks, and after a change of the world the rest over the new ranks."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Sized
from typing import Any

from horovod.common.names import rank, size


class ElasticSampler:
    """A sampler that neither repeats nor skips samples when the world changes within an epoch.

    Call `record_batch` after every batch and before the commit, `set_epoch` at the end of every epoch, and hold the
    sampler in the state. All ranks take batches of the same size; the last one may be smaller.

    So that all ranks have the same number of samples, the last batch of an epoch is filled up from the samples that
    were left when the world was formed. Without `fill_up` every sample is used exactly once, and some ranks have one
    sample less; then the number of batches may differ too, which the caller must handle.
    """

    def __init__(self, dataset: Sized, shuffle: bool = True, seed: int = 0, *, fill_up: bool = True) -> None:
        self.dataset = dataset
        self.shuffle = shuffle
        self.seed = seed
        self.fill_up = fill_up
        self.epoch = 0
        self.processed_num = 0
        self.reset()

    def set_epoch(self, epoch: int) -> None:
        """Begin an epoch: nothing is processed. At the END of the epoch before, so that a reset repeats nothing."""
        self.epoch = epoch
        self.processed_num = 0
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Note that every rank has processed a batch of this size."""
        self.processed_num += batch_size * self.num_replicas

    def state_dict(self) -> dict[str, int]:
        """The progress within the epoch."""
        return {"epoch": self.epoch, "processed_num": self.processed_num}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from there, in the current world."""
        self.epoch = state_dict["epoch"]
        self.processed_num = state_dict["processed_num"]
        self.reset()

    def reset(self) -> None:
        """Divide the rest of the epoch over the ranks of the current world."""
        self.num_replicas = size()
        self.rank = rank()
        self.indices = list(range(len(self.dataset)))
        if self.shuffle:
            random.Random(self.seed + self.epoch).shuffle(self.indices)
        self.processed_indices = set(self.indices[: self.processed_num])
        self.remaining_indices = self.indices[self.processed_num :]
        self.num_samples = math.ceil(len(self.remaining_indices) / self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas

    def __iter__(self) -> Iterator[int]:
        if not self.fill_up:
            return iter(self.remaining_indices[self.rank :: self.num_replicas])
        filled_up = itertools.cycle(self.remaining_indices)
        return itertools.islice(filled_up, self.rank, self.total_size, self.num_replicas)

    def __len__(self) -> int:
        if self.fill_up:
            return self.num_samples
        return len(range(self.rank, len(self.remaining_indices), self.num_replicas))


__all__ = ["ElasticSampler"]

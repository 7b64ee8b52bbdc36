"""Batches for elastic training: continue in the middle of an epoch, and track the processed samples."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader, Dataset

from horovod.torch.elastic.sampler import ElasticSampler


class ElasticDataLoader:
    """A DataLoader over what is left of the epoch, which records every batch that it hands out.

    Hold `loader.sampler` in the state, commit (or check for changed hosts) after the step and not before, and call
    `loader.sampler.set_epoch` at the end of an epoch. Each loop over it continues where the last one stopped.

    All ranks get the same number of batches. With a sampler that does not fill up, a rank for which nothing is left
    gets None as its last batch: it takes part in the step without samples.
    """

    def __init__(
        self, dataset: Dataset[Any], batch_size: int = 1, sampler: ElasticSampler | None = None, **options: Any
    ) -> None:
        """`options` are those of DataLoader, such as num_workers. The default sampler shuffles."""
        refused = {"shuffle", "batch_sampler", "drop_last"} & options.keys()
        if refused:
            raise ValueError(f"{', '.join(sorted(refused))}: the sampler decides on order and batches")
        if batch_size < 1:
            raise ValueError(f"batch_size must be 1 or more, not {batch_size}")
        self.dataset = dataset
        self.batch_size = batch_size
        self.sampler = ElasticSampler(dataset) if sampler is None else sampler  # type: ignore[arg-type]
        self._options = options

    def __len__(self) -> int:
        """The number of batches that the next loop will have, if the world stays."""
        left = max(0, len(self.sampler.indices) - self.sampler.processed_num)
        return math.ceil(math.ceil(left / self.sampler.num_replicas) / self.batch_size)

    def __iter__(self) -> Iterator[Any]:
        self.sampler.reset()
        own = list(self.sampler)
        batches = [own[start : start + self.batch_size] for start in range(0, len(own), self.batch_size)]
        loaded = iter(DataLoader(self.dataset, batch_sampler=batches, **self._options))
        for number in range(len(self)):
            batch = next(loaded) if number < len(batches) else None
            # All ranks took a whole batch, or the rest of what there was.
            self.sampler.record_batch(number, self.batch_size)
            yield batch


__all__ = ["ElasticDataLoader"]

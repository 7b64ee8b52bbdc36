"""ElasticSampler as a sampler of PyTorch."""

from __future__ import annotations

from torch.utils.data import Sampler

from horovod.common.elastic import sampler


class ElasticSampler(sampler.ElasticSampler, Sampler[int]):
    """Samples of which none is repeated or left out when the world changes within an epoch.

    Call `record_batch` after every batch and before the commit, `set_epoch` at the end of every epoch, and hold the
    sampler in the state. All ranks take batches of the same size; the last one may be smaller.

    So that all ranks have the same number of samples, the last of an epoch are filled up from what was left when the
    world was formed. Without `fill_up` every sample comes exactly once, and some ranks have one sample less; then the
    number of batches may differ too, which ElasticDataLoader takes care of.
    """


__all__ = ["ElasticSampler"]

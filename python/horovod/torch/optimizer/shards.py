"""Parameters laid end to end and cut into one piece per rank: owners, and conversions between the two forms."""

from __future__ import annotations

from collections.abc import Sequence

import torch

# Larger ones would only need more memory at a time.
BUCKET_BYTES = 32 << 20


class ShardedBucket:
    """Some parameters of one type as a flat vector, padded so that every rank owns a piece of the same length."""

    def __init__(self, name: str, parameters: Sequence[torch.Tensor], rank: int, size: int) -> None:
        self.name = name
        self.parameters = list(parameters)
        first = parameters[0]
        self.starts: list[int] = []
        total = 0
        for parameter in parameters:
            self.starts.append(total)
            total += parameter.numel()
        self.length = -(-total // size)
        self._total, self._first = total, rank * self.length
        # The parameter of the inner optimizer.
        self.shard = torch.nn.Parameter(torch.zeros(self.length, dtype=first.dtype, device=first.device))
        self._flat = torch.zeros(size * self.length, dtype=first.dtype, device=first.device)

    def flatten(self, tensors: Sequence[torch.Tensor | None]) -> torch.Tensor:
        """The tensors, shaped like the parameters, concatenated; None means zeros. Valid until the next call."""
        with torch.no_grad():
            for start, parameter, tensor in zip(self.starts, self.parameters, tensors, strict=True):
                place = self._flat[start : start + parameter.numel()]
                if tensor is None:
                    place.zero_()
                else:
                    place.copy_(tensor.reshape(-1))
            self._flat[self._total :].zero_()
        return self._flat

    def mine(self, flat: torch.Tensor) -> torch.Tensor:
        """This rank's piece of a flat vector."""
        return flat[self._first : self._first + self.length]

    def cut(self, flat: torch.Tensor) -> torch.Tensor:
        """This rank's piece of a flat vector that may be padded for another number of ranks."""
        piece = torch.zeros(self.length, dtype=flat.dtype)
        owned = flat[self._first : min(self._first + self.length, self._total)]
        piece[: len(owned)].copy_(owned)
        return piece

    def load_shard(self) -> None:
        """Take the values of this rank's piece from the parameters, which other code may have changed."""
        stop = self._first + self.length
        with torch.no_grad():
            for start, parameter in zip(self.starts, self.parameters, strict=True):
                begin, end = max(start, self._first), min(start + parameter.numel(), stop)
                if begin < end:
                    values = parameter.detach().reshape(-1)[begin - start : end - start]
                    self.shard[begin - self._first : end - self._first].copy_(values)

    def unflatten(self, flat: torch.Tensor) -> list[torch.Tensor]:
        """Views of a flat vector in the shapes of the parameters."""
        return [
            flat[start : start + parameter.numel()].view(parameter.shape)
            for start, parameter in zip(self.starts, self.parameters, strict=True)
        ]


def divide(
    groups: Sequence[Sequence[torch.Tensor]], rank: int, size: int, bucket_bytes: int
) -> list[list[ShardedBucket]]:
    """The buckets of each parameter group; parameters of different types do not share one."""
    divided: list[list[ShardedBucket]] = []
    for number, group in enumerate(groups):
        by_type: dict[tuple[torch.dtype, torch.device], list[list[torch.Tensor]]] = {}
        room: dict[tuple[torch.dtype, torch.device], int] = {}
        for parameter in group:
            kind = parameter.dtype, parameter.device
            if room.get(kind, 0) <= 0:
                by_type.setdefault(kind, []).append([])
                room[kind] = bucket_bytes
            by_type[kind][-1].append(parameter)
            room[kind] -= parameter.numel() * parameter.element_size()
        stretches = [stretch for each in by_type.values() for stretch in each]
        divided.append(
            [ShardedBucket(f"sharded.{number}.{i}", stretch, rank, size) for i, stretch in enumerate(stretches)]
        )
    return divided

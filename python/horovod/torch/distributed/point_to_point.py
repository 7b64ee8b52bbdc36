"""Sending and receiving. The n-th message of a tag from one rank to another is the n-th that is received.

A receive from any source asks the engine for the next sender (a probe), and then receives that message under its
number. If a receive from the same source is posted while the probe waits, it gets the message that the probe finds, and
the receive from any source gets the next one.

Thread rule: any thread.
"""

from __future__ import annotations

import collections
import itertools
import threading
from collections.abc import Sequence
from typing import Any

import torch

from horovod._native.abi import Kind
from horovod._native.library import library
from horovod.torch.distributed import memory, requests
from horovod.torch.distributed.work import BaseWork, EngineWork, StepsWork


class Transfers:
    """The messages of one group. Ranks are those of the group; the engine's are `ranks`."""

    def __init__(self, scope: str, ranks: Sequence[int]) -> None:
        self._scope = scope
        self._ranks = ranks
        self._lock = threading.Lock()
        self._sent: dict[tuple[int, int], int] = collections.defaultdict(int)  # by target and tag
        self._received: dict[tuple[int, int], int] = collections.defaultdict(int)  # by source and tag
        self._probes = itertools.count()

    def send(self, tensor: torch.Tensor, target: int, tag: int, seconds: float) -> EngineWork:
        flat = memory.to_read(tensor)
        return self._submit("send", Kind.SEND, self._sent, target, tag, flat, [tensor], seconds, None)

    def receive(self, tensor: torch.Tensor, source: int, tag: int, seconds: float) -> EngineWork:
        flat, finish = memory.to_fill(tensor)
        return self._submit("recv", Kind.RECEIVE, self._received, source, tag, flat, [tensor], seconds, finish)

    def receive_from_anybody(self, tensor: torch.Tensor, tag: int, seconds: float) -> BaseWork:
        name = f"{self._scope}t{tag}#{next(self._probes)}"
        request = requests.make(Kind.PROBE, name, 0, 0, 0, (), ())
        sender: list[int] = []
        handle = requests.submit([request], False)
        probe = EngineWork(
            "recv", handle, request, [], seconds, lambda done: sender.append(library().hvd_result_value(done))
        )

        def follow(current: Any) -> Any:
            if current is probe:
                return self.receive(tensor, self._ranks.index(sender[0]), tag, seconds)
            return None

        return StepsWork("recv", probe, [tensor], seconds, follow)

    def _submit(
        self,
        verb: str,
        kind: Kind,
        counts: dict[tuple[int, int], int],
        peer: int,
        tag: int,
        flat: torch.Tensor,
        outputs: Sequence[torch.Tensor],
        seconds: float,
        finish: Any,
    ) -> EngineWork:
        # As bytes: what the two sides call them need not be the same.
        count = flat.numel() * flat.itemsize
        address = flat.data_ptr()
        with self._lock:
            number = counts[peer, tag]
            name = f"{self._scope}t{tag}#{number}"
            request = requests.make(kind, name, address, address, 0, (count,), (count,), 0, self._ranks[peer])
            handle = requests.submit([request], False)
            counts[peer, tag] = number + 1
        return EngineWork(verb, handle, (request, flat), outputs, seconds, finish, peer)

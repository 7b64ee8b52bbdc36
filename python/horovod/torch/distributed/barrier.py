"""A barrier that says who is missing. Every rank reports to rank 0, which answers when it has heard from all of them.
Thread rule: one caller at a time in a group.
"""

from __future__ import annotations

import time
from typing import Any

import torch

from horovod.torch.distributed.errors import TimeoutError
from horovod.torch.distributed.point_to_point import Transfers


class MonitoredBarrier:
    """The monitored barriers of one group."""

    def __init__(self, group: Any) -> None:
        self._group = group
        self._times = 0

    def enter(self, seconds: float, wait_all_ranks: bool) -> None:
        """Wait for all ranks; TimeoutError names those that have not come."""
        group = self._group
        self._times += 1
        transfers = Transfers(
            f"{group._scope}m{self._times}", group._ranks
        )  # what an earlier one left is not in the way
        if group.rank() == 0:
            self._lead(transfers, seconds, wait_all_ranks)
        else:
            self._report(transfers, seconds)

    def _lead(self, transfers: Transfers, seconds: float, wait_all_ranks: bool) -> None:
        end = time.monotonic() + seconds
        heard = {
            rank: transfers.receive(torch.empty(1, dtype=torch.uint8), rank, 0, seconds)
            for rank in range(1, self._group.size())
        }
        missing = []
        for rank, work in heard.items():
            while not work._done and not work._advance(max(0.0, min(0.2, end - time.monotonic()))):
                if time.monotonic() >= end:
                    break
            if not work._done or work._error is not None:
                missing.append(rank)
                if not wait_all_ranks:
                    break
        if missing:
            who = f"Rank {missing[0]}" if len(missing) == 1 else "Ranks " + ", ".join(map(str, missing))
            raise TimeoutError(f"[Rank 0]: {who} failed to pass monitoredBarrier in {seconds * 1000:.0f} ms")
        for work in [transfers.send(torch.zeros(1, dtype=torch.uint8), rank, 0, seconds) for rank in heard]:
            work.wait()

    def _report(self, transfers: Transfers, seconds: float) -> None:
        rank = self._group.rank()
        report = transfers.send(torch.zeros(1, dtype=torch.uint8), 0, 0, seconds)
        answer = transfers.receive(torch.empty(1, dtype=torch.uint8), 0, 0, seconds)
        try:
            report.wait()
            answer.wait()
        except TimeoutError:
            raise TimeoutError(
                f"[Rank {rank}]: rank {rank} successfully reached monitoredBarrier, but received errors while waiting "
                f"for send/recv from rank 0. Please check rank 0 logs for faulty rank."
            ) from None

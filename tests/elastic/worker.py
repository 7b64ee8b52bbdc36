"""A training without a framework whose parameters are their own account: element i says how often sample i was used.

Every sample of an epoch adds one to its element, through the same allreduce, commit and sync as any gradient. At the
end of each epoch every element must be the number of epochs: one that was lost or used twice shows.
"""

from __future__ import annotations

import os
import sys
import time
import zlib
from typing import Any

import numpy as np
from points import STOP, begin, point, tell

import horovod.numpy as hvd
from horovod.common.elastic import ObjectState, run_fn

SAMPLES = int(os.environ.get("ELASTIC_TEST_SAMPLES", "61"))
BATCH = 3
STEP_SECONDS = float(os.environ.get("ELASTIC_TEST_STEP_SECONDS", "0.002"))  # pretended computation

# Keep commits there, too; {host} stands for the name of this host.
FILE = os.environ.get("ELASTIC_TEST_FILE", "").format(host=os.environ.get("HOROVOD_HOSTNAME"))


class Training(ObjectState):
    """Values are replaced, never changed in place, so that saving references is enough."""

    account: np.ndarray[Any, Any]
    epoch: int
    processed: int

    def __init__(self) -> None:
        super().__init__(hvd.broadcast_object, hvd.rank, account=np.zeros(SAMPLES + 1), epoch=0, processed=0)

    def save(self) -> None:
        point("commit", hvd.rank())
        super().save()

    def sync(self) -> None:
        point("sync", hvd.rank())
        super().sync()


def order(epoch: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(epoch).permutation(SAMPLES)


def step(state: Training) -> bool:
    """One step of all ranks; whether a rank was asked to stop."""
    chunk = order(state.epoch)[state.processed : state.processed + BATCH * hvd.size()]
    used = np.zeros_like(state.account)
    used[chunk[hvd.rank() :: hvd.size()]] = 1
    used[SAMPLES] = STOP.exists()
    time.sleep(STEP_SECONDS)
    point("negotiation", hvd.rank())
    handle = hvd.allreduce_async(used, name="gradient", op=hvd.Sum)
    point("collective", hvd.rank())
    total = hvd.synchronize(handle)
    stop = bool(total[SAMPLES])
    total[SAMPLES] = 0
    state.account = state.account + total
    state.processed += len(chunk)
    return stop


def check_account(state: Training) -> None:
    wrong = np.flatnonzero(state.account[:SAMPLES] != state.epoch + 1)
    if len(wrong):
        tell("wrong", rank=hvd.rank(), samples=wrong.tolist(), epoch=state.epoch)
        print(
            f"samples {wrong.tolist()} were used {state.account[wrong]} times by epoch {state.epoch}", file=sys.stderr
        )
        os._exit(3)


def train(state: Training) -> None:
    is_new_world, stop = True, False
    while not (stop and state.processed == 0):
        stop = step(state) or stop
        if is_new_world:
            host = os.environ.get("HOROVOD_HOSTNAME", "")
            tell("going", rank=hvd.rank(), size=hvd.size(), epoch=state.epoch, host=host)
            is_new_world = False
        if state.processed >= SAMPLES:
            check_account(state)
            state.epoch, state.processed = state.epoch + 1, 0
            if hvd.rank() == 0:
                tell("epoch", epoch=state.epoch)
        state.commit()


def form_world() -> None:
    point("leaving", hvd.rank())
    hvd.shutdown()
    point("forming")
    hvd.init()


def main() -> None:
    begin()
    point("init")
    hvd.init()
    state = Training()
    if FILE:
        tell("resumed", found=state.resume_from(FILE), commits=state.progress().commits)
        state.save_to(FILE)
    run_fn(train, form_world)(state)
    point("exit", hvd.rank())
    digest = zlib.crc32(state.account.tobytes())
    tell("done", rank=hvd.rank(), size=hvd.size(), epoch=state.epoch, digest=digest, commit=state.commit_seconds)


if __name__ == "__main__":
    main()

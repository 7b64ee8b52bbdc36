"""A worker of the elastic tests: trains until the file END exists, and says which world it is in.

Lines: `world PID RANK SIZE LOCAL_RANK LOCAL_SIZE CROSS_RANK CROSS_SIZE HOST` once a world has done its first step.
A file named `exit.RANK` in the folder of END makes that rank exit with code 3 at its next step, `die.RANK` makes it die
in the middle of the next re-forming, and `leave.RANK` makes it say that it leaves. While there is a file `hold`,
workers that are started do not come.
"""

import os
import pathlib
import signal
import sys
import time

import numpy as np

import horovod.numpy as hvd
from horovod._native import elastic
from horovod.common.elastic import ObjectState, run_fn

END = pathlib.Path(sys.argv[1])
NAMES = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")


def is_asked(what: str) -> bool:
    return (END.parent / f"{what}.{hvd.rank()}").exists()


def reset() -> None:
    dies = is_asked("die")
    hvd.shutdown()
    if dies:  # the others form a world with this one, and are already joining it
        os.kill(os.getpid(), signal.SIGKILL)
    hvd.init()


def train(state: ObjectState) -> int:
    is_new = True
    while True:
        ended = hvd.allreduce(np.array([1.0, float(END.exists())]), name="step", op=hvd.Sum)
        assert ended[0] == hvd.size()
        if is_new:
            place = [str(value) for value in (hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size())]
            place += [str(hvd.cross_rank()), str(hvd.cross_size())]
            assert place == [os.environ[f"HOROVOD_{name}"] for name in NAMES]
            print("world", os.getpid(), *place, os.environ["HOROVOD_HOSTNAME"], flush=True)
            is_new = False
        if ended[1] > 0:
            return state.step
        if is_asked("exit"):
            print("this one was told to fail", file=sys.stderr)
            os._exit(3)
        if is_asked("leave"):
            (END.parent / f"leave.{hvd.rank()}").unlink()
            elastic.leave("its machine is taken away")
        state.step += 1
        time.sleep(0.01)  # so that many of these tests may run at once
        state.commit()


while (END.parent / "hold").exists():
    time.sleep(0.01)
hvd.init()
state = ObjectState(lambda value, root_rank=0, name=None: hvd.broadcast_object(value, root_rank), hvd.rank, step=0)
print("end", hvd.rank(), run_fn(train, reset)(state), flush=True)

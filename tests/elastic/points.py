"""What a worker under test shares with its job (job.py): where faults happen, and what it reports.

Worker side. At named points the worker looks for a fault that is set for this point, claims it and does it
to itself: so a fault is where it is meant to be, without any waiting for the right moment. A fault is a file whose name
says everything: NUMBER.KIND.POINT.RANK, where RANK may be "any".
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import random
import signal
import socket
import threading
import time
from pathlib import Path
from typing import Any

FOLDER = Path(os.environ.get("ELASTIC_TEST_FOLDER", "."))
FAULTS, CLAIMED, STOP = FOLDER / "faults", FOLDER / "claimed", FOLDER / "stop"
_socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)


def tell(event: str, **values: Any) -> None:
    """Tell the job what happens here; after the end of the job the message is dropped."""
    message = {"event": event, "pid": os.getpid(), "time": time.monotonic(), **values}
    with contextlib.suppress(OSError):
        _socket.sendto(json.dumps(message).encode(), str(FOLDER / "events"))


def begin() -> None:
    """Say that this process is there. SIGUSR1 shows its stacks."""
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    tell("begun")


def point(name: str, rank: int = -1) -> None:
    """A place where a fault may happen."""
    for path in sorted(FAULTS.iterdir()):
        number, kind, where, whom = path.name.split(".")
        if where != name or whom not in ("any", str(rank)):
            continue
        try:
            path.rename(CLAIMED / path.name)
        except FileNotFoundError:
            continue  # another was faster
        tell("fault", number=int(number), kind=kind, point=where, rank=rank)
        _do(kind)


def _do(kind: str) -> None:
    if kind == "exit":
        os._exit(1)
    if kind == "later":  # while this process forms a world
        threading.Timer(random.random() * 0.05, os.kill, (os.getpid(), signal.SIGKILL)).start()
        return
    os.kill(os.getpid(), {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "term": signal.SIGTERM}[kind])

"""The program of every worker of horovod.run: fetch the function, call it, send its result to the caller.

    python -m horovod.runner.run_task ADDRESS[,ADDRESS...] PORT

The key of the run is in the environment, and removed from it before the function is called. The connection stays open
while the function runs: when the caller's process dies for any reason, the worker ends too.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
import traceback
from typing import Any

from horovod.common import endings
from horovod.common.exceptions import HorovodInternalError, WorkerRemoved
from horovod.runner.common.util.env import get_env_rank_and_size
from horovod.runner.function import channel
from horovod.runner.function.task import KEY_VARIABLE, describe, pack, type_name, unpack


class Connection:
    """The connection to the caller. A thread receives, because the caller may end at any time."""

    def __init__(self, link: channel.Channel) -> None:
        self._link = link
        self._thanked = threading.Event()
        os.register_at_fork(after_in_child=link.forget)
        link.send({"kind": "hello", "rank": _rank(), "host": _host(), "pid": os.getpid()})
        link.settimeout(None)
        self.task = link.receive()

    def watch(self) -> None:
        """From now on, end this process when the caller is gone."""
        threading.Thread(target=self._listen, name="horovod.run", daemon=True).start()

    def deliver(self, header: dict[str, Any], parts: list[bytes | memoryview]) -> None:
        """Send the outcome, and wait until the caller has it."""
        with contextlib.suppress(OSError):  # the caller is gone: the receiving thread ends this process
            self._link.send(header | {"rank": _rank()}, parts)
        self._thanked.wait()

    def _listen(self) -> None:
        try:
            self._link.receive()
        except OSError as error:
            message = f"horovod.run: rank {_rank()} ends because its caller is gone: {error}\n"
            os.write(2, message.encode())
            os._exit(1)
        self._thanked.set()


def main(arguments: list[str]) -> int:
    """Run the worker; returns the exit code."""
    key = os.environ.pop(KEY_VARIABLE, "")
    if len(arguments) != 2 or not key:
        print("horovod.runner.run_task is started by horovod.run, not by hand", file=sys.stderr)
        return 2
    connection = Connection(_connect(arguments[0].split(","), int(arguments[1]), bytes.fromhex(key)))
    connection.watch()
    del sys.argv[1:]  # they are not for the function
    sys.path += [path for path in connection.task.header["paths"] if path not in sys.path]
    try:
        result = unpack(connection.task.parts)()
    except WorkerRemoved:
        return 0  # an elastic job continues without this process
    except BaseException as error:
        return _fail(connection, error)
    return _succeed(connection, result)


def _succeed(connection: Connection, result: Any) -> int:
    try:
        parts = pack(result)
    except Exception as error:
        text = f"the result of rank {_rank()}, a {type_name(result)}, cannot be pickled"
        return _fail(connection, TypeError(f"{text}: {describe(error)}"))
    connection.deliver({"kind": "result"}, parts)
    return 0


def _fail(connection: Connection, error: BaseException) -> int:
    if isinstance(error, SystemExit) and error.code in (None, 0):
        return _succeed(connection, None)
    endings.install()
    endings.note(error)
    # The first frame is ours.
    trace = error.__traceback__.tb_next if error.__traceback__ is not None else None
    text = "".join(traceback.format_exception(type(error), error, trace))
    print(endings.short_traceback(error, trace) or text, end="", file=sys.stderr, flush=True)
    try:
        exception = pack(error)
    except Exception:
        exception = []
    origin = endings.cause_of(error)
    header = {
        "kind": "error",
        "consequence": origin is not None or isinstance(error, HorovodInternalError),
        "origin": -1 if origin is None else origin.rank,
    }
    connection.deliver(header, [describe(error).encode(errors="replace"), text.encode(errors="replace"), *exception])
    return error.code if isinstance(error, SystemExit) and isinstance(error.code, int) else 1


def _connect(addresses: list[str], port: int, key: bytes) -> channel.Channel:
    """Connect to the caller at the first address that works; SystemExit lists what was tried."""
    seconds = float(os.environ.get("HOROVOD_START_TIMEOUT") or 30)
    try:
        return channel.connect("the process that called it", [(each, port) for each in addresses], key, seconds)
    except OSError as error:
        raise SystemExit(f"horovod.run: rank {_rank()} on {_host()}: {error}") from None


def _rank() -> int:
    return get_env_rank_and_size()[0]  # mpirun has its own variables


def _host() -> str:
    return os.environ.get("HOROVOD_HOSTNAME") or socket.gethostname()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

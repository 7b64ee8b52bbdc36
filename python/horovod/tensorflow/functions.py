"""Functions for the start of a script that give all ranks the same values, and collectives on objects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from horovod._generic import objects
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow.as_written import as_written
from horovod.tensorflow.util import _executing_eagerly
from horovod.tensorflow.variables import broadcast_variables


@as_written
def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Return the object of `root_rank`, unpickled; the root returns its own.

    The default name is that of the local object's type, so ranks pass the same type or a name. No session is needed:
    objects cannot be sent in graphs.
    """
    return objects.broadcast_object(obj, root_rank, name, process_set)


def broadcast_object_fn(
    root_rank: int = 0,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Callable[[Any], Any]:
    """Return a function that broadcasts the object it is given, again and again."""

    def broadcast(obj: Any) -> Any:
        return broadcast_object(obj, root_rank, session, name, process_set)

    return broadcast


@as_written
def allgather_object(
    obj: Any, session: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """Return the objects of all ranks of the set, in rank order."""
    return objects.allgather_object_in(process_set, obj, name)


def broadcast_global_variables(root_rank: int) -> Any:
    """Return the operation that replaces all global variables of a v1 graph by those of `root_rank`."""
    if _executing_eagerly():
        raise RuntimeError(
            "hvd.broadcast_global_variables() does not support eager execution, which has no global variables; use "
            "hvd.broadcast_variables(<model>.variables, root_rank=0)"
        )
    return broadcast_variables(tf.compat.v1.global_variables(), root_rank)


_SessionRunHook: Any = getattr(tf.compat.v1.train, "SessionRunHook", None)

if _SessionRunHook is not None:

    class BroadcastGlobalVariablesHook(_SessionRunHook):  # type: ignore[misc]
        """Replaces all global variables by those of `root_rank` when a v1 session has been made."""

        def __init__(self, root_rank: int, device: str = "") -> None:
            super().__init__()
            self.root_rank = root_rank
            self.bcast_op: Any = None
            self.device = device

        def begin(self) -> None:
            """Add the broadcast to the graph, before it is finalised."""
            if self.bcast_op is None or self.bcast_op.graph is not tf.compat.v1.get_default_graph():
                with tf.device(self.device):
                    self.bcast_op = broadcast_global_variables(self.root_rank)

        def after_create_session(self, session: Any, coord: Any) -> None:
            """Run it."""
            session.run(self.bcast_op)


__all__ = [
    "allgather_object",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_object_fn",
    "broadcast_variables",
]

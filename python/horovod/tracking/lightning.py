"""A callback for Lightning: `Trainer(callbacks=[MetricsCallback(TensorBoard("runs/one"))])`."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from functools import cache
from typing import TYPE_CHECKING, Any

from horovod.tracking.tracker import Tracker, flatten
from horovod.tracking.writers import Writer

_PACKAGES = ("lightning.pytorch", "pytorch_lightning")


class CallbackMethods:
    """Logs what a Tracker does, and what the module logs with `self.log`."""

    def __init__(self, *writers: Writer, every: int = 10, all_ranks: bool = False) -> None:
        super().__init__()
        self.tracker = Tracker(*writers, every=every, all_ranks=all_ranks)

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        """A step is over."""
        is_logged = (self.tracker.steps + 1) % self.tracker.every == 0
        values = {name: float(value) for name, value in trainer.callback_metrics.items()} if is_logged else {}
        self.tracker.step(**dict(flatten(values)))

    def teardown(self, *_: Any, **__: Any) -> None:
        """The training is over, or has failed."""
        self.tracker.close()


@cache
def callback_class(package: str) -> type[CallbackMethods]:
    """The callback for `lightning.pytorch` or `pytorch_lightning`."""
    callbacks = importlib.import_module(f"{package}.callbacks")
    return type("MetricsCallback", (CallbackMethods, callbacks.Callback), {"__doc__": CallbackMethods.__doc__})


def _package() -> str:
    for name in _PACKAGES:
        if name in sys.modules:
            return name
    for name in _PACKAGES:
        if importlib.util.find_spec(name.split(".")[0]) is not None:
            return name
    raise ImportError("horovod.tracking.lightning needs Lightning: pip install lightning, or pytorch-lightning")


if TYPE_CHECKING:
    MetricsCallback = CallbackMethods
else:

    def __getattr__(name: str) -> Any:
        if name == "MetricsCallback":
            return callback_class(_package())
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["MetricsCallback", "callback_class"]

"""A callback for Lightning, under either of its names, `lightning` and `pytorch_lightning`:

    Trainer(strategy=HorovodStrategy(), callbacks=[MetricsCallback(TensorBoard("runs/one"))])

`MetricsCallback` is for the one that is imported already, or else installed; `callback_class` says which.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from functools import cache
from typing import TYPE_CHECKING, Any

from horovod.tracking.tracker import Tracker
from horovod.tracking.writers import Writer

_PACKAGES = ("lightning.pytorch", "pytorch_lightning")


class CallbackMethods:
    """Logs what a Tracker does, and what the module logs with `self.log`. The arguments are those of Tracker."""

    def __init__(self, *writers: Writer, every: int = 10, all_ranks: bool = False) -> None:
        super().__init__()
        self.tracker = Tracker(*writers, every=every, all_ranks=all_ranks)

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        """A step is over."""
        self.tracker.step_with(lambda: {name: float(value) for name, value in trainer.callback_metrics.items()})

    def on_fit_end(self, *_: Any) -> None:
        """The training is over."""
        self.tracker.close()

    def on_exception(self, *_: Any) -> None:
        """The training has failed."""
        self.tracker.close()


@cache
def callback_class(package: str) -> type[CallbackMethods]:
    """The callback for `lightning.pytorch` or `pytorch_lightning`."""
    callbacks = importlib.import_module(f"{package}.callbacks")
    members = {"__doc__": CallbackMethods.__doc__, "__module__": __name__}
    return type("MetricsCallback", (CallbackMethods, callbacks.Callback), members)


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

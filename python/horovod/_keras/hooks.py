"""Changes to Keras for distributed optimizers that neither arguments nor subclasses can make.

`install` replaces two methods, when the first distributed optimizer is created; without Horovod, models and
optimizers behave as before:
* `Model.compile` accepts `experimental_run_tf_function`, which scripts for Horovod pass and Keras 3 does not know any
  more, and switches XLA off for models with a distributed optimizer: XLA cannot run collectives.
* `LossScaleOptimizer.check_finite` of Keras 3 asks all ranks. They must skip the same steps, or some would wait for
  gradients that others do not send.

Thread rule: the main thread, where models are compiled.
"""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from horovod._keras.backend import module_for
from horovod._keras.distributed import Distributed, is_distributed
from horovod._keras.variables import backend_name, is_keras_3

log = logging.getLogger("horovod")

_wrap_optimizer: list[Callable[[Any], Any]] = []  # set by `wrapping_optimizers`, the last one counts


@contextmanager
def wrapping_optimizers(wrap: Callable[[Any], Any]) -> Iterator[None]:
    """While a model is loaded: its optimizer goes through `wrap` before the model is compiled and gets its state."""
    _wrap_optimizer.append(wrap)
    try:
        yield
    finally:
        _wrap_optimizer.pop()


def install(keras: ModuleType) -> None:
    """Replace the methods, once for each package of Keras."""
    trainer = next(cls for cls in keras.Model.__mro__ if "compile" in vars(cls))
    if not hasattr(trainer.compile, "_hvd_hook"):
        trainer.compile = _hooked_compile(trainer.compile, keras)
    if is_keras_3(keras) and not hasattr(keras.optimizers.LossScaleOptimizer.check_finite, "_hvd_hook"):
        scaler = keras.optimizers.LossScaleOptimizer
        scaler.check_finite = _hooked_check_finite(scaler.check_finite, keras)


def _hooked_compile(compile: Callable[..., Any], keras: ModuleType) -> Callable[..., Any]:
    @functools.wraps(compile)
    def hooked(self: Any, *args: Any, **kwargs: Any) -> Any:
        if is_keras_3(keras) and kwargs.pop("experimental_run_tf_function", None) is not None:
            _say_once("experimental_run_tf_function is not used: Keras 3 has no such argument")
        if _wrap_optimizer:
            args, kwargs = _with_wrapped_optimizer(args, kwargs, _wrap_optimizer[-1])
        result = compile(self, *args, **kwargs)
        switch_off_xla(self, keras)
        return result

    hooked._hvd_hook = True  # type: ignore[attr-defined]
    return hooked


def _with_wrapped_optimizer(args: Any, kwargs: Any, wrap: Callable[[Any], Any]) -> tuple[Any, Any]:
    if args:
        return (wrap(args[0]), *args[1:]), kwargs
    if kwargs.get("optimizer") is not None:
        return args, {**kwargs, "optimizer": wrap(kwargs["optimizer"])}
    return args, kwargs


def switch_off_xla(model: Any, keras: ModuleType) -> None:
    """Compile the steps of this model without XLA if its optimizer is distributed, and log that once."""
    if backend_name(keras) != "tensorflow" or not is_distributed(getattr(model, "optimizer", None)):
        return
    if getattr(model, "jit_compile", False):
        model.jit_compile = False
        _say_once("jit_compile is turned off: XLA cannot run Horovod's operations")


def _hooked_check_finite(check_finite: Callable[..., Any], keras: ModuleType) -> Callable[..., Any]:
    @functools.wraps(check_finite)
    def hooked(self: Any, grads: Any) -> Any:
        finite = check_finite(self, grads)
        inner = self.inner_optimizer
        if not isinstance(inner, Distributed):
            return finite
        return module_for(keras).all_ranks_agree(finite, inner._hvd_settings)

    hooked._hvd_hook = True  # type: ignore[attr-defined]
    return hooked


def check_not_compiled_by_xla() -> None:
    """Raise, while a step is traced, if XLA will compile it: XLA's own error suggests no remedy."""
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is None or tensorflow.executing_eagerly():
        return
    frame = sys._getframe(1)
    while frame.f_back is not None:
        frame = frame.f_back
        owner = frame.f_locals.get("self")
        if owner is not None and getattr(owner, "_jit_compile", None) is True and hasattr(owner, "python_function"):
            raise ValueError(
                "Horovod's operations cannot be compiled by XLA: use tf.function without jit_compile=True, or "
                "model.compile(..., jit_compile=False)"
            )


@functools.cache
def _say_once(text: str) -> None:
    log.warning(text)


__all__ = ["check_not_compiled_by_xla", "install", "switch_off_xla", "wrapping_optimizers"]

"""Optimizers of Keras that reduce gradients over all ranks before they apply them.

The class of a distributed optimizer derives from that of the given one. `type(optimizer)` is the derived class, of
module horovod._keras; `optimizer.__class__`, which is what Keras asks when it saves, is the given class. So files name
the plain optimizer, and can be loaded where there is no Horovod.

Gradients are reduced once: by `compute_gradients` if it is called, as `minimize` does, else when they are applied.
Methods that the given class overrides are called: those that compute gradients before the reduction, those that apply
or change them after it.

Thread rule: as the optimizer's own.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

from horovod._keras import hooks
from horovod._keras.backend import module_for
from horovod._keras.distributed import Distributed, is_distributed
from horovod._keras.settings import Settings
from horovod._keras.variables import is_keras_3, keras_of
from horovod.common.process_sets import ProcessSet

Pairs = list[tuple[Any, Any]]  # gradients and variables


class DistributedOptimizer(Distributed):
    """Shared by the optimizers of all Keras versions; mixed in before the given class."""

    _hvd_base: ClassVar[type]
    _hvd_local_layers: ClassVar[Sequence[Any]] = ()
    _hvd_reducer: Any  # created by the backend
    _hvd_reduced: bool  # the gradients to be applied next are already reduced
    _hvd_applying: bool  # the given class applies reduced gradients now, in one go or in parts

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        base, settings = self._hvd_base, self._hvd_settings
        reducer = module_for(keras_of(self)).Reducer(settings, settings.name or f"Distributed{base.__name__}")
        # Bypasses the tracking of Keras: none of this belongs in a checkpoint.
        object.__setattr__(self, "_hvd_reducer", reducer)
        object.__setattr__(self, "_hvd_reduced", False)
        object.__setattr__(self, "_hvd_applying", False)

    @property
    def _agg_helper(self) -> Any:
        return self._hvd_reducer.helper

    @property
    def _local_vars(self) -> list[Any]:
        return self._hvd_reducer.local  # type: ignore[no-any-return]

    @property
    def process_set(self) -> ProcessSet:
        """The ranks that gradients are reduced over."""
        return self._hvd_settings.process_set

    @property
    def scale_local_gradients(self) -> bool:
        """Whether gradients of local variables are divided by the number of ranks."""
        return self._hvd_settings.scale_local_gradients

    def register_local_var(self, var: Any) -> None:
        """Leave this variable to each rank: its gradient is not reduced."""
        if not any(var is known for known in self._local_vars):
            self._hvd_reducer.register_local(var)

    def _allreduce(self, grads: Sequence[Any], vars: Sequence[Any]) -> list[Any]:
        self._find_local_layers()
        return self._hvd_reducer.reduce(grads, vars)  # type: ignore[no-any-return]

    def _reduce_pairs(self, pairs: Iterable[tuple[Any, Any]]) -> Pairs:
        """The gradients for the next step, unless they are reduced already."""
        pairs = list(pairs)
        if self._hvd_applying:
            return pairs
        if self._hvd_reduced or not pairs:
            object.__setattr__(self, "_hvd_reduced", False)
            return pairs
        self._find_local_layers()
        grads, variables = zip(*pairs, strict=True)
        reduced = self._hvd_reducer.compute(grads, variables)
        return list(zip(reduced, variables, strict=True))

    def _reduce_early(self, pairs: Iterable[tuple[Any, Any]]) -> Pairs:
        """As _reduce_pairs; the gradients that are applied next are not reduced again."""
        object.__setattr__(self, "_hvd_reduced", False)
        reduced = self._reduce_pairs(pairs)
        object.__setattr__(self, "_hvd_reduced", True)
        return reduced

    def _reduce_what(self, compute: Callable[[], Iterable[tuple[Any, Any]]]) -> Pairs:
        """The gradients that a method of the given class computes, reduced once even if one calls another."""
        object.__setattr__(self, "_hvd_reduced", False)
        pairs = list(compute())
        return pairs if self._hvd_reduced else self._reduce_early(pairs)

    def _apply_reduced(self, step: Callable[[], Any]) -> Any:
        """Have the given class apply gradients: they are not reduced again by methods that it calls."""
        if self._hvd_applying:
            return step()
        object.__setattr__(self, "_hvd_applying", True)
        try:
            return step()
        finally:
            object.__setattr__(self, "_hvd_applying", False)
            object.__setattr__(self, "_hvd_reduced", False)

    def _users_own(self, name: str) -> Callable[..., Any] | None:
        """The method of the given class if it is not Keras's: one that a user has overridden or added."""
        method = getattr(self._hvd_base, name, None)
        if method is None or getattr(method, "__module__", "").partition(".")[0] in ("keras", "tf_keras", "tensorflow"):
            return None
        return functools.partial(method, self)

    def _hvd_get_gradients(self, loss: Any, params: Sequence[Any]) -> list[Any]:
        own = self._users_own("get_gradients")
        compute = own if own is not None else module_for(keras_of(self)).symbolic_gradients
        pairs = self._reduce_what(lambda: zip(compute(loss, params), params, strict=True))
        return [grad for grad, _ in pairs]

    def _find_local_layers(self) -> None:
        """Some layers create their variables only with the first batch."""
        for layer in self._hvd_local_layers:
            for variable in layer.trainable_weights:
                self.register_local_var(variable)


class CallableList(list[Any]):
    """Variables that scripts for older versions may ask for with `optimizer.variables()`."""

    def __call__(self) -> CallableList:
        return self


class Keras3Optimizer(DistributedOptimizer):
    """Keras 3: all training methods call `apply`, on every backend."""

    @property
    def variables(self) -> CallableList:
        """All variables of the optimizer."""
        return CallableList(super().variables)  # type: ignore[misc]

    def apply(self, grads: Sequence[Any], trainable_variables: Sequence[Any] | None = None) -> Any:
        """Reduce the gradients and update the variables."""
        grads = list(grads)
        if not grads:
            return super().apply(grads, trainable_variables)  # type: ignore[misc]
        if trainable_variables is None:
            variables = self._trainable_variables  # type: ignore[attr-defined]
        else:
            variables = trainable_variables = list(trainable_variables)
            if not self.built:  # type: ignore[has-type]
                self.build(variables)  # type: ignore[attr-defined]
                self.built = True
        if len(variables) != len(grads):
            return super().apply(grads, trainable_variables)  # it raises the error
        hooks.check_not_compiled_by_xla()
        reduced = [grad for grad, _ in self._reduce_pairs(zip(grads, variables, strict=True))]
        step = super().apply  # type: ignore[misc]
        iterations = self._iterations  # type: ignore[attr-defined]
        return self._hvd_reducer.apply(
            lambda: self._apply_reduced(lambda: step(reduced, trainable_variables)), iterations
        )

    def apply_gradients(self, grads_and_vars: Iterable[tuple[Any, Any]], *args: Any, **kwargs: Any) -> Any:
        """Reduce the gradients and update the variables. A user's own method gets the reduced ones."""
        step = super().apply_gradients  # type: ignore[misc]
        if self._users_own("apply_gradients") is None:
            return step(grads_and_vars, *args, **kwargs)  # which calls `apply`
        hooks.check_not_compiled_by_xla()
        pairs = self._reduce_pairs(grads_and_vars)
        return self._apply_reduced(lambda: step(pairs, *args, **kwargs))

    def compute_gradients(self, loss: Any, var_list: Any, tape: Any = None) -> Pairs:
        """Return pairs of reduced gradient and variable, for `apply_gradients`."""
        own = self._users_own("compute_gradients")
        if own is not None:
            return self._reduce_what(lambda: own(loss, var_list, **({} if tape is None else {"tape": tape})))
        return self._compute_gradients(loss, var_list, tape=tape)

    def _compute_gradients(self, loss: Any, var_list: Any, grad_loss: Any = None, tape: Any = None) -> Pairs:
        compute = self._users_own("_compute_gradients") or self._gradients_of
        return self._reduce_what(lambda: compute(loss, var_list, grad_loss, tape))

    def _gradients_of(self, loss: Any, var_list: Any, grad_loss: Any, tape: Any) -> Pairs:
        pairs: Pairs = module_for(keras_of(self)).gradients_of(loss, var_list, tape, grad_loss)
        return pairs

    def get_gradients(self, loss: Any, params: Sequence[Any]) -> list[Any]:
        """Return the reduced gradients of a tensor."""
        return self._hvd_get_gradients(loss, params)

    def _aggregate_gradients(self, grads_and_vars: Iterable[tuple[Any, Any]]) -> Pairs:
        return self._reduce_pairs(grads_and_vars)

    def minimize(self, loss: Any, var_list: Any, tape: Any = None) -> Any:
        """Compute the gradients, reduce them and update the variables."""
        own = self._users_own("minimize")
        if own is not None:
            return own(loss, var_list, **({} if tape is None else {"tape": tape}))
        return self.apply_gradients(self.compute_gradients(loss, var_list, tape))


class Keras2Optimizer(DistributedOptimizer):
    """tf_keras: `compute_gradients` is used by `minimize` and `fit`, `aggregate_gradients` by loss scale optimizers."""

    def compute_gradients(self, loss: Any, var_list: Any, tape: Any = None) -> Pairs:
        """Return pairs of reduced gradient and variable, for `apply_gradients`."""
        hooks.check_not_compiled_by_xla()
        compute = super().compute_gradients  # type: ignore[misc]
        return self._reduce_what(lambda: compute(loss, var_list, tape))

    def _compute_gradients(self, loss: Any, var_list: Any, grad_loss: Any = None, tape: Any = None) -> Pairs:
        if grad_loss is not None:
            raise ValueError("grad_loss works with legacy optimizers only: multiply the loss instead")
        return self.compute_gradients(loss, var_list, tape)

    def get_gradients(self, loss: Any, params: Sequence[Any]) -> list[Any]:
        """Return the reduced gradients of a tensor within a graph."""
        return self._hvd_get_gradients(loss, params)

    def aggregate_gradients(self, grads_and_vars: Iterable[tuple[Any, Any]]) -> Pairs:
        """Reduce the gradients that `compute_gradients` has not. A user's own method comes after that."""
        is_inside = self._hvd_applying
        pairs = self._reduce_pairs(grads_and_vars)
        own = self._users_own("aggregate_gradients")
        return pairs if own is None or is_inside else list(own(pairs))

    def _aggregate_gradients(self, grads_and_vars: Iterable[tuple[Any, Any]]) -> Pairs:
        return self._reduce_pairs(grads_and_vars)

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Any, Any]],
        name: str | None = None,
        skip_gradients_aggregation: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Reduce the gradients unless that is done or not wanted, and update the variables."""
        wanted = kwargs.pop("experimental_aggregate_gradients", True) and not skip_gradients_aggregation
        pairs = self.aggregate_gradients(grads_and_vars) if wanted else list(grads_and_vars)
        object.__setattr__(self, "_hvd_reduced", False)
        if self._agg_helper is not None and pairs:
            import tensorflow as tf

            with tf.init_scope():  # variables cannot be made in the branch that a step is
                self.build([variable for _, variable in pairs])  # type: ignore[attr-defined]
        step = super().apply_gradients  # type: ignore[misc]
        options = {**kwargs, **_known(step, {"skip_gradients_aggregation": True})}
        if name is not None:
            options["name"] = name
        iterations = self.iterations  # type: ignore[attr-defined]
        return self._hvd_reducer.apply(lambda: self._apply_reduced(lambda: step(pairs, **options)), iterations)


class LegacyOptimizer(DistributedOptimizer):
    """tf_keras.optimizers.legacy, also in graphs of TensorFlow 1."""

    def compute_gradients(self, loss: Any, var_list: Any, tape: Any = None) -> Pairs:
        """Return pairs of reduced gradient and variable, for `apply_gradients`."""
        return self._compute_gradients(loss, var_list, tape=tape)

    def _compute_gradients(self, loss: Any, var_list: Any, grad_loss: Any = None, tape: Any = None) -> Pairs:
        hooks.check_not_compiled_by_xla()
        compute = super()._compute_gradients  # type: ignore[misc]
        return self._reduce_what(lambda: compute(loss, var_list, grad_loss, tape))

    def get_gradients(self, loss: Any, params: Sequence[Any]) -> list[Any]:
        """Return the reduced gradients of a tensor within a graph."""
        compute = super().get_gradients  # type: ignore[misc]
        pairs = self._reduce_what(lambda: zip(compute(loss, params), params, strict=True))
        return [grad for grad, _ in pairs]

    def _aggregate_gradients(self, grads_and_vars: Iterable[tuple[Any, Any]]) -> Pairs:
        """Reduce the gradients that `compute_gradients` has not. A user's own method comes after that."""
        is_inside = self._hvd_applying
        pairs = self._reduce_pairs(grads_and_vars)
        own = self._users_own("_aggregate_gradients")
        return pairs if own is None or is_inside else list(own(pairs))

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Any, Any]],
        name: str | None = None,
        experimental_aggregate_gradients: bool = True,
    ) -> Any:
        """Reduce the gradients unless that is done or not wanted, and update the variables."""
        pairs = list(grads_and_vars)
        if experimental_aggregate_gradients:
            pairs = self._aggregate_gradients(pairs)
        object.__setattr__(self, "_hvd_reduced", False)
        if self._agg_helper is not None:
            import tensorflow as tf

            with tf.init_scope():  # variables cannot be made in the branch that a step is
                self._create_all_weights([variable for _, variable in pairs])  # type: ignore[attr-defined]
        step = super().apply_gradients  # type: ignore[misc]
        iterations = self.iterations  # type: ignore[attr-defined]
        options = _known(step, {"experimental_aggregate_gradients": False})
        if name is not None:
            options["name"] = name
        return self._hvd_reducer.apply(lambda: self._apply_reduced(lambda: step(pairs, **options)), iterations)


def _known(function: Callable[..., Any], options: dict[str, Any]) -> dict[str, Any]:
    """The options that a function accepts: a user's own may accept fewer than that of Keras."""
    parameters = inspect.signature(function).parameters
    takes_all = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values())
    return {name: value for name, value in options.items() if takes_all or name in parameters}


def distribute(optimizer: Any, settings: Settings, local_layers: Sequence[Any] = ()) -> Any:
    """Return a new optimizer with the configuration of the given one, which reduces gradients. State is not copied."""
    if is_distributed(optimizer):
        raise ValueError("the optimizer is distributed already: its gradients would be reduced twice")
    try:
        keras = keras_of(optimizer)
    except ValueError:
        raise ValueError(f"DistributedOptimizer needs an optimizer of Keras, not {type(optimizer).__name__}") from None
    module_for(keras)
    hooks.install(keras)
    derived = distributed_class(type(optimizer), _mixin_for(optimizer, is_keras_3(keras)), settings, local_layers)
    made = derived.from_config(_config_of(optimizer, keras))
    for layer in local_layers:
        for variable in getattr(layer, "trainable_weights", ()):
            made.register_local_var(variable)
    return made


def _config_of(optimizer: Any, keras: Any) -> dict[str, Any]:
    """Its configuration, with schedule objects: Keras could not recreate one of a user's class."""
    config = dict(optimizer.get_config())
    schedule = getattr(optimizer, "_hyper", {}).get("learning_rate") or getattr(optimizer, "_learning_rate", None)
    if isinstance(schedule, keras.optimizers.schedules.LearningRateSchedule):
        config["learning_rate"] = schedule
    return config


def distributed_class(base: type, mixin: type, settings: Settings, local_layers: Sequence[Any] = ()) -> Any:
    """A class that derives from `base` and has its name."""
    namespace = {
        "__module__": "horovod._keras",
        "__doc__": base.__doc__,
        "__class__": property(lambda self: base),
        "_hvd_settings": settings,
        "_hvd_base": base,
        "_hvd_local_layers": tuple(local_layers),
    }
    return type(base.__name__, (mixin, base), namespace)


def _mixin_for(optimizer: Any, keras_3: bool) -> type:
    if keras_3 and hasattr(optimizer, "apply"):
        return Keras3Optimizer
    if hasattr(optimizer, "aggregate_gradients"):
        return Keras2Optimizer
    if hasattr(optimizer, "_compute_gradients"):
        return LegacyOptimizer
    raise ValueError(f"DistributedOptimizer cannot reduce the gradients of {type(optimizer).__name__}")


__all__ = ["DistributedOptimizer", "distribute", "distributed_class", "is_distributed"]

"""The same initial state on all ranks: parameters and objects of one rank."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mxnet.gluon.parameter import DeferredInitializationError, Parameter, ParameterDict
from mxnet.ndarray import NDArray

from horovod._generic import objects
from horovod._generic.objects import allgather_object
from horovod.mxnet.mpi_ops import broadcast_, size


def broadcast_object(obj: Any, root_rank: int = 0, name: str | None = None) -> Any:
    """Return the object of `root_rank`, unpickled; the root returns its own. Other ranks may pass any object."""
    return objects.broadcast_object(obj, root_rank, name)


def broadcast_parameters(params: Any, root_rank: int = 0, prefix: str | None = None) -> None:
    """Replace the parameters by those of `root_rank`: a dict of arrays or Parameters, or a ParameterDict.

    Returns at once. A parameter whose shape is not known before the first forward pass is broadcast when it is
    initialised. Give different prefixes to networks whose parameters have the same names.
    """
    if not isinstance(params, (dict, ParameterDict)):
        raise ValueError(f"params must be a dict or a ParameterDict, not {type(params).__name__}")
    if size() == 1:
        return
    for key in sorted(params.keys()):
        each, name = params[key], f"{prefix or ''}{key}"
        if isinstance(each, NDArray):
            broadcast_(each, root_rank, name)
        elif isinstance(each, Parameter):
            _broadcast_parameter(each, root_rank, name)
        else:
            raise ValueError(f"parameter {key} is neither an array nor a Parameter, but {type(each).__name__}")


def _broadcast_parameter(parameter: Parameter, root_rank: int, name: str) -> None:
    try:
        arrays = parameter.list_data()
    except DeferredInitializationError:
        parameter._init_impl = _broadcasting(parameter, parameter._init_impl, root_rank, name)
        return
    broadcast_(arrays[0], root_rank, name)
    for other in arrays[1:]:
        arrays[0].copyto(other)


def _broadcasting(
    parameter: Parameter, initialise: Callable[..., None], root_rank: int, name: str
) -> Callable[..., None]:
    """Initialises the parameter, then broadcasts it, once."""

    def initialise_and_broadcast(*args: Any, **kwargs: Any) -> None:
        del parameter._init_impl  # restores the method of the class
        initialise(*args, **kwargs)
        _broadcast_parameter(parameter, root_rank, name)

    return initialise_and_broadcast


__all__ = ["allgather_object", "broadcast_object", "broadcast_parameters"]

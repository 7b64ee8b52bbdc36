"""The verbs' interface to a framework's tensors, implemented by every framework's package."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from horovod._native.dlpack import Outputs
from horovod._native.operations import EngineMemory, TensorView

T = TypeVar("T")


class Tensors(ABC, Generic[T]):
    """Accesses a framework's tensors and creates new ones."""

    @abstractmethod
    def view(self, tensor: T) -> TensorView:
        """The location of the elements. ValueError for an unsupported type or memory that is not contiguous."""

    @abstractmethod
    def view_to_write(self, tensor: T) -> TensorView:
        """As `view`, for an operation that replaces the elements; ValueError also if they are read-only."""

    @abstractmethod
    def empty_like(self, tensor: T) -> T:
        """A new tensor of the same shape, type and device, for a result."""

    def view_result(self, output: T, source: TensorView) -> TensorView:
        """As `view`, for an output that `empty_like` made for the tensor behind `source`."""
        return self.view(output)

    def current_stream(self, view: TensorView) -> int:
        """The stream that the calling thread uses at present on the view's accelerator."""
        return view.stream

    def outputs_for(self, sources: Sequence[TensorView]) -> Outputs | None:
        """Memory of the framework for outputs of these tensors, whose sizes are not known yet; None: the engine's."""
        return None

    def adopt_output(self, capsule: object, like: T) -> T:
        """The tensor in such memory, from DLPack's capsule."""
        raise NotImplementedError

    @abstractmethod
    def adopt(self, memory: EngineMemory, like: T) -> T:
        """A tensor of the type of `like` over the engine's memory, without a copy; it keeps `memory` alive."""

    @abstractmethod
    def read_splits(self, splits: Any) -> Sequence[int]:
        """The argument `splits` of alltoall as ints; ValueError unless it is a list of ints or 1-D int32."""

    @abstractmethod
    def make_splits(self, received: Sequence[int], like: Any) -> T:
        """The received splits as an int32 tensor where `like`, the argument `splits`, is; in host memory if None."""

"""The verbs of horovod over arrays in GPU memory: an adapter as the frameworks have, with a current stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import device_array as gpu
import numpy as np

from horovod._generic.collectives import Collectives
from horovod._generic.tensors import Tensors
from horovod._native.operations import EngineMemory, TensorView


class DeviceTensors(Tensors[gpu.DeviceArray]):
    """`current` is the stream of the user's work; an array's own stream is that of its copies."""

    current: int | None = None

    def view(self, tensor: gpu.DeviceArray) -> TensorView:
        return tensor.view()

    view_to_write = view

    def empty_like(self, tensor: gpu.DeviceArray) -> gpu.DeviceArray:
        return gpu.DeviceArray(np.zeros_like(tensor.values), tensor.device)

    def current_stream(self, view: TensorView) -> int:
        return view.stream if self.current is None else self.current

    def adopt(self, memory: EngineMemory, like: gpu.DeviceArray) -> gpu.DeviceArray:
        raise NotImplementedError

    def read_splits(self, splits: Any) -> Sequence[int]:
        return list(splits)

    def make_splits(self, received: Sequence[int], like: Any) -> gpu.DeviceArray:
        raise NotImplementedError


hvd = Collectives(DeviceTensors())

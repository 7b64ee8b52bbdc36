"""Errors: where they are raised, and what they say."""

from __future__ import annotations

import mxnet as mx
import numpy as np
import pytest

import horovod.mxnet as hvd
from horovod.mxnet.arrays import _code_of


def test_ranks_that_disagree() -> None:
    result = hvd.allreduce(mx.nd.ones((2 + hvd.rank(),)), name="differs")
    with pytest.raises(hvd.HorovodInternalError, match=r"horovod_allreduce.differs.*rank 1 sent \[3\]") as caught:
        result.asnumpy()
    assert isinstance(caught.value, mx.base.MXNetError)
    result = mx.nd.ones((2 + hvd.rank(),))
    hvd.allreduce_(result, name="differs again")
    dependent = (result + 1) * 2
    with pytest.raises(hvd.HorovodInternalError, match="differs again"):
        dependent.wait_to_read()
    with pytest.raises(hvd.HorovodInternalError, match="mismatched"):
        hvd.allgather(mx.nd.ones((2, 2 + hvd.rank())))
    with pytest.raises(hvd.HorovodInternalError, match="mismatched"):
        hvd.synchronize(hvd.allreduce_async(mx.nd.ones((2 + hvd.rank(),))))
    with pytest.raises(mx.base.MXNetError):
        mx.nd.waitall()  # operations whose results were not read
    assert hvd.allreduce(mx.nd.ones((2,))).asnumpy().tolist() == [1, 1]


@pytest.mark.usefixtures("numbered_anew")
def test_a_name_that_is_in_flight() -> None:
    hvd.barrier()
    if hvd.rank() == 0:
        first = hvd.allreduce(mx.nd.ones((2,)), name="twice")
        with pytest.raises(mx.base.MXNetError, match="twice") as caught:
            while True:  # until the first is submitted; it cannot finish before the others take part
                hvd.allreduce(mx.nd.ones((2,)), name="twice").wait_to_read()
        assert not isinstance(caught.value, hvd.HorovodInternalError)
    hvd.barrier()
    if hvd.rank() != 0:
        first = hvd.allreduce(mx.nd.ones((2,)), name="twice")
    assert first.asnumpy().tolist() == [1, 1]


def test_an_input_that_has_failed() -> None:
    """The operation is not run, and the error is that of the input."""
    failed = hvd.allreduce(mx.nd.ones((2 + hvd.rank(),)), name="first failure")
    with pytest.raises(hvd.HorovodInternalError):
        hvd.allgather(failed, name="never run")
    with pytest.raises(mx.base.MXNetError, match="first failure"):
        failed.wait_to_read()


@pytest.mark.usefixtures("numbered_anew")
def test_arguments() -> None:
    array = mx.nd.ones((2, 2))
    for verb in (hvd.allgather, hvd.alltoall, hvd.reducescatter):
        with pytest.raises(AssertionError, match=r"mx\.nd\.NDArray"):
            verb(np.ones(2))
    with pytest.raises(ValueError, match="not ndarray"):
        hvd.allreduce(np.ones(2))
    with pytest.raises(AssertionError, match="Adasum"):
        hvd.allreduce(array, op=hvd.Adasum)
    with pytest.raises(AssertionError, match="Average and Sum"):
        hvd.reducescatter(array, hvd.Max)
    with pytest.raises(ValueError, match="either op or average"):
        hvd.allreduce(array, average=True, op=hvd.Sum)
    with pytest.raises(ValueError, match="splits must be 1-D and int32, not 1-D and float32"):
        hvd.alltoall(array, mx.nd.ones((hvd.size(),)))
    with pytest.raises(mx.base.MXNetError, match="splits"):
        hvd.alltoall(array, [3] * hvd.size())
    with pytest.raises(ValueError, match=r"row_sparse.*tostype\('default'\)"):
        hvd.allreduce_(array.tostype("row_sparse"))
    with pytest.raises(ValueError, match="type bool"):
        hvd.allreduce(mx.nd.array([1, 0], dtype=bool))
    with pytest.raises(ValueError, match="bfloat16 is not supported: MXNet has"):
        _code_of(np.dtype([("bfloat16", np.uint16)]))
    with pytest.raises(ValueError, match="dict or a ParameterDict"):
        hvd.broadcast_parameters([array])
    with pytest.raises(ValueError, match="not registered"):
        hvd.allreduce(array, process_set=hvd.ProcessSet([0]))
    with pytest.raises(mx.base.MXNetError, match="root"):
        hvd.broadcast(array, 99).wait_to_read()


@pytest.mark.usefixtures("numbered_anew")
def test_without_a_world() -> None:
    hvd.barrier()
    hvd.shutdown()
    with pytest.raises(hvd.HorovodInternalError, match="init"):
        hvd.allreduce(mx.nd.ones((2,))).wait_to_read()
    hvd.init(process_sets="dynamic")
    assert hvd.allreduce(mx.nd.ones((2,))).asnumpy().tolist() == [1, 1]

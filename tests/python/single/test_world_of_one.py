"""One process without a launcher is a world of one, and every mistake that needs no peer is reported there."""

from __future__ import annotations

import inspect
import sys
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import horovod.numpy as hvd
from horovod._native.abi import Kind
from horovod._native.operations import make_signal, release, submit, wait
from horovod.common.basics import HorovodBasics


@pytest.fixture
def world() -> Iterator[None]:
    hvd.init()
    yield
    hvd.shutdown()


QUESTIONS = [
    hvd.rank,
    hvd.size,
    hvd.local_rank,
    hvd.local_size,
    hvd.cross_rank,
    hvd.cross_size,
    hvd.is_homogeneous,
    hvd.mpi_threads_supported,
    hvd.stop_timeline,
    lambda: hvd.start_timeline("unused"),
    lambda: hvd.add_process_set([0]),
    lambda: hvd.ProcessSet([0]).included(),
    hvd.global_process_set.size,
]


@pytest.mark.parametrize("question", QUESTIONS)
def test_questions_before_init(question: Any) -> None:
    with pytest.raises(ValueError, match=r"Horovod has not been initialized; use hvd.init\(\)\."):
        question()


def test_what_can_be_asked_before_init() -> None:
    assert not hvd.is_initialized()
    assert not hvd.mpi_enabled() and not hvd.gloo_enabled()
    assert hvd.gloo_built() is True
    assert type(hvd.mpi_built()) is bool
    assert type(hvd.nccl_built()) is int
    assert hvd.ddl_built() is hvd.ccl_built() is hvd.rocm_built() is False
    hvd.shutdown()


def test_operations_before_init() -> None:
    with pytest.raises(hvd.HorovodInternalError, match="not been initialized"):
        hvd.allreduce(np.ones(3))


@pytest.mark.usefixtures("world")
def test_place() -> None:
    assert hvd.is_initialized()
    places = [hvd.rank, hvd.size, hvd.local_rank, hvd.local_size, hvd.cross_rank, hvd.cross_size]
    assert [place() for place in places] == [0, 1, 0, 1, 0, 1]
    assert hvd.is_homogeneous()
    assert hvd.gloo_enabled() and not hvd.mpi_enabled()
    with pytest.raises(ValueError, match="MPI"):
        hvd.mpi_threads_supported()
    with pytest.raises(ValueError, match="HOROVOD_TIMELINE"):
        hvd.start_timeline("unused")


@pytest.mark.usefixtures("world")
def test_every_verb() -> None:
    values = np.arange(6.0).reshape(3, 2)
    np.testing.assert_array_equal(hvd.allreduce(values), values)
    np.testing.assert_array_equal(hvd.allgather(values), values)
    np.testing.assert_array_equal(hvd.broadcast(values, 0), values)
    np.testing.assert_array_equal(hvd.alltoall(values), values)
    np.testing.assert_array_equal(hvd.reducescatter(values), values)
    assert hvd.broadcast_object({"a": values.tolist()}) == {"a": values.tolist()}
    assert hvd.allgather_object("one") == ["one"]
    assert hvd.join() == 0
    hvd.barrier()


def test_init_again_after_shutdown_numbers_handles_from_1() -> None:
    for _ in range(3):
        hvd.init()
        hvd.init()
        handle = hvd.allreduce_async(np.ones(2))
        assert handle == 1
        assert hvd.synchronize(handle) is not None
        assert hvd.allreduce_async(np.ones(2)) == 2
        hvd.shutdown()
        hvd.shutdown()
        assert not hvd.is_initialized()


def test_handles_of_the_engine_mean_nothing_in_the_next_world() -> None:
    """A handle that is kept too long must not wait for, or release, another operation."""
    seen: set[int] = set()
    for _ in range(3):
        hvd.init()
        native = submit([make_signal(Kind.BARRIER, "barrier")], True)
        for old in seen:
            assert old != native
            with pytest.raises(ValueError, match="no handle"):
                wait(old)
            release(old)
        wait(native)
        seen.add(native)
        hvd.shutdown()


def test_a_result_is_there_after_shutdown() -> None:
    hvd.init()
    handle = hvd.allreduce_async(np.ones(2))
    while not hvd.poll(handle):
        pass
    gathered = hvd.allgather(np.ones((2, 2)))
    hvd.shutdown()
    np.testing.assert_array_equal(hvd.synchronize(handle), np.ones(2))
    np.testing.assert_array_equal(gathered, np.ones((2, 2)))


@pytest.mark.usefixtures("world")
def test_handles() -> None:
    handle = hvd.allreduce_async(np.ones(2))
    hvd.synchronize(handle)
    assert hvd.synchronize(handle) is None
    assert hvd.synchronize(12345) is None
    for unknown in (handle, 12345):
        with pytest.raises(ValueError, match=str(unknown)):
            hvd.poll(unknown)


@pytest.mark.parametrize("comm", [None, [], [0, 1]])
def test_lists_as_comm_are_not_used(comm: Any) -> None:
    hvd.init(comm)
    assert hvd.size() == 1
    hvd.shutdown()


def test_wrong_arguments_of_init() -> None:
    for wrong in (3, object()):
        with pytest.raises(ValueError, match="comm"):
            hvd.init(wrong)
    with pytest.raises(ValueError, match="process_sets"):
        hvd.init(process_sets="static")
    with pytest.raises(ValueError, match="process_sets"):
        hvd.init(process_sets=[[0]])  # type: ignore[list-item]
    assert not hvd.is_initialized()


def test_process_sets_before_they_are_registered() -> None:
    process_set = hvd.ProcessSet([2, 0, 1])
    assert str(process_set) == "ProcessSet(process_set_id=None, ranks=[0, 1, 2], mpi_comm=None)"
    assert process_set.size() is None and process_set.rank() is None
    for wrong in ([0, "1"], np.array([0, 1]), [1.0], 3, object(), "01"):
        with pytest.raises(ValueError, match="process set"):
            hvd.ProcessSet(wrong)  # type: ignore[arg-type]


@pytest.mark.usefixtures("world")
def test_process_sets_that_cannot_be_used() -> None:
    with pytest.raises(ValueError, match="not registered"):
        hvd.allreduce(np.ones(2), process_set=hvd.ProcessSet([0]))
    with pytest.raises(ValueError, match="HOROVOD_DYNAMIC_PROCESS_SETS"):
        hvd.add_process_set([0])
    assert hvd.remove_process_set(hvd.global_process_set) is False
    assert hvd.remove_process_set(hvd.ProcessSet([0])) is False
    with pytest.raises(KeyError):
        hvd.init(process_sets=[hvd.ProcessSet([5])])


@pytest.mark.usefixtures("world")
def test_arrays_that_are_not_contiguous() -> None:
    values = np.arange(12.0).reshape(3, 4)
    for call in (hvd.allreduce, hvd.allreduce_, hvd.allgather, hvd.alltoall, hvd.reducescatter):
        with pytest.raises(ValueError, match="ascontiguousarray"):
            call(values.T)
    with pytest.raises(ValueError, match="ascontiguousarray"):
        hvd.broadcast(values[:, 1], 0)
    np.testing.assert_array_equal(hvd.allreduce(values[1:]), values[1:])


@pytest.mark.usefixtures("world")
def test_read_only_arrays() -> None:
    values = np.arange(4.0)
    values.flags.writeable = False
    np.testing.assert_array_equal(hvd.allreduce(values), values)
    for call in (hvd.allreduce_, hvd.allreduce_async_):
        with pytest.raises(ValueError, match="read-only"):
            call(values)
    with pytest.raises(ValueError, match="read-only"):
        hvd.broadcast_(values, 0)
    with pytest.raises(ValueError, match="read-only"):
        hvd.grouped_allreduce_([np.ones(1), values])


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize("wrong", [[1.0, 2.0], 3.0, "text", None, np.array(["a"]), np.array([1.0], ">f4")])
def test_what_is_not_a_supported_array(wrong: Any) -> None:
    for call in (hvd.allreduce, hvd.allreduce_, hvd.allgather, hvd.alltoall, hvd.reducescatter):
        with pytest.raises(ValueError, match=r"NumPy array|not supported"):
            call(wrong)


@pytest.mark.usefixtures("world")
def test_scalars() -> None:
    for scalar in (np.float32(1.5), np.array(1.5, np.float32)):
        result = hvd.allreduce(scalar)  # type: ignore[arg-type]
        assert result.shape == () and result.dtype == np.float32 and result == 1.5
        assert hvd.broadcast(scalar, 0) == 1.5  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="in place"):
        hvd.allreduce_(np.float32(1))  # type: ignore[arg-type]
    with pytest.raises(ValueError):
        hvd.reducescatter(np.array(1.0))
    with pytest.raises(hvd.HorovodInternalError):
        hvd.allgather(np.array(1.0))


@pytest.mark.usefixtures("world")
def test_the_average_argument() -> None:
    values = np.full(3, 4.0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        hvd.allreduce(values, True)
        hvd.allreduce_(values, average=False)
        hvd.grouped_allreduce([values], average=True)
    assert [(each.category, each.filename) for each in caught] == [(DeprecationWarning, __file__)] * 3
    with pytest.raises(ValueError, match="both"):
        hvd.allreduce(values, average=True, op=hvd.Sum)


@pytest.mark.usefixtures("world")
def test_empty_groups() -> None:
    for call in (
        hvd.grouped_allreduce,
        hvd.grouped_allreduce_,
        hvd.grouped_allgather,
        hvd.grouped_reducescatter,
        hvd.grouped_allreduce_async,
    ):
        with pytest.raises(ValueError, match="at least one"):
            call([])


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize(
    "splits", [[1.0], np.array([1.0]), np.array([1]), np.array([[1]], np.int32), [[1]], [2], [1, 0]]
)
def test_bad_splits(splits: Any) -> None:
    with pytest.raises(ValueError):
        hvd.alltoall(np.ones(1), splits)


@pytest.mark.usefixtures("world")
def test_parameters_that_cannot_be_broadcast() -> None:
    for wrong in (iter([np.ones(1)]), np.ones(1), (np.ones(1),)):
        with pytest.raises(ValueError, match="dict or a list"):
            hvd.broadcast_parameters(wrong, 0)  # type: ignore[arg-type]


def test_signatures_have_the_order_scripts_rely_on() -> None:
    reduce = "average name op prescale_factor postscale_factor process_set"
    scatter = "name op process_set prescale_factor postscale_factor"
    expected = {
        "allreduce": "tensor average name compression op prescale_factor postscale_factor process_set",
        "allreduce_async": f"tensor {reduce}",
        "allreduce_": f"tensor {reduce}",
        "allreduce_async_": f"tensor {reduce}",
        "grouped_allreduce": "tensors average name compression op prescale_factor postscale_factor process_set",
        "grouped_allreduce_async": f"tensors {reduce}",
        "grouped_allreduce_": f"tensors {reduce}",
        "grouped_allreduce_async_": f"tensors {reduce}",
        "allgather": "tensor name process_set",
        "allgather_async": "tensor name process_set",
        "grouped_allgather": "tensors name process_set",
        "grouped_allgather_async": "tensors name process_set",
        "broadcast": "tensor root_rank name process_set",
        "broadcast_async": "tensor root_rank name process_set",
        "broadcast_": "tensor root_rank name process_set",
        "broadcast_async_": "tensor root_rank name process_set",
        "alltoall": "tensor splits name process_set",
        "alltoall_async": "tensor splits name process_set",
        "reducescatter": "tensor name compression op process_set prescale_factor postscale_factor",
        "reducescatter_async": f"tensor {scatter}",
        "grouped_reducescatter": "tensors name compression op process_set prescale_factor postscale_factor",
        "grouped_reducescatter_async": f"tensors {scatter}",
        "join": "device",
        "barrier": "process_set",
        "poll": "handle",
        "synchronize": "handle",
        "broadcast_parameters": "params root_rank",
        "broadcast_object": "obj root_rank name process_set",
        "allgather_object": "obj name",
        "init": "comm process_sets",
        "start_timeline": "file_path mark_cycles",
    }
    assert {name: " ".join(inspect.signature(getattr(hvd, name)).parameters) for name in expected} == expected


def test_reduce_ops_have_their_numbers() -> None:
    assert [hvd.Average, hvd.Sum, hvd.Adasum, hvd.Min, hvd.Max, hvd.Product] == [0, 1, 2, 3, 4, 5]


def test_basics_accept_the_name_of_an_extension() -> None:
    assert HorovodBasics(__file__, "mpi_lib_v2").is_initialized() is False


def test_all_lists_what_is_there() -> None:
    assert [name for name in hvd.__all__ if not hasattr(hvd, name)] == []


@pytest.mark.usefixtures("world")
def test_compression() -> None:
    values = np.array([1.0, 2.5, -3.0])
    assert hvd.allreduce(values, compression=hvd.Compression.fp16).dtype == np.float64
    np.testing.assert_array_equal(hvd.allreduce(values, compression=hvd.Compression.fp16), values)
    integers = np.arange(3)
    assert hvd.Compression.fp16.compress(integers)[0] is integers
    assert hvd.Compression.fp16.compress(values)[0].dtype == np.float16
    same, context = hvd.Compression.none.compress(values)
    assert same is values and context is None

    class Halves:
        @staticmethod
        def compress(tensor: Any) -> tuple[Any, Any]:
            return tensor / 2, 2

        @staticmethod
        def decompress(tensor: Any, ctx: Any) -> Any:
            return tensor * ctx

    np.testing.assert_array_equal(hvd.allreduce(values, compression=Halves), values)
    np.testing.assert_array_equal(hvd.grouped_allreduce([values], compression=Halves)[0], values)
    np.testing.assert_array_equal(hvd.reducescatter(values, compression=Halves), values)


@pytest.fixture
def eager_threads() -> Iterator[None]:
    """Threads take turns as often as Python can, so that short windows are hit."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def first_handle() -> int:
    """The handle of the first operation that can be submitted."""
    while True:
        try:
            return hvd.allreduce_async(np.ones(2), op=hvd.Sum)
        except hvd.HorovodInternalError:
            continue  # there is no world yet


def test_an_operation_of_another_thread_in_a_new_world_is_kept(eager_threads: None) -> None:
    """It may come before `init` has returned, and its memory is in use."""
    for _ in range(10):
        with ThreadPoolExecutor(1) as pool:
            handle = pool.submit(first_handle)
            hvd.init()
            assert hvd.synchronize(handle.result()) is not None
        hvd.shutdown()


def test_an_init_of_another_thread_forgets_nothing(eager_threads: None) -> None:
    for _ in range(4):
        start = threading.Barrier(3)

        def init_and_submit(start: threading.Barrier = start) -> Any:
            start.wait()
            hvd.init()
            return hvd.synchronize(hvd.allreduce_async(np.ones(2), op=hvd.Sum))

        with ThreadPoolExecutor(3) as pool:
            results = [pool.submit(init_and_submit) for _ in range(3)]
            assert all(each.result() is not None for each in results)
        hvd.shutdown()


def test_handles_are_kept_when_no_world_could_be_formed(monkeypatch: pytest.MonkeyPatch) -> None:
    hvd.init()
    handle = hvd.allreduce_async(np.ones(2), op=hvd.Sum)
    hvd.shutdown()
    with monkeypatch.context() as patch:
        patch.setenv("HOROVOD_SIZE", "no number")
        with pytest.raises(ValueError, match="HOROVOD_SIZE"):
            hvd.init()
    assert hvd.poll(handle)

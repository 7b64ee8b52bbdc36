"""horovod.run calls a function on every rank and returns what each returned."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import horovod


def test_results_come_in_the_order_of_ranks() -> None:
    def rank() -> int:
        return int(os.environ["HOROVOD_RANK"])

    assert horovod.run(rank, num_proc=4) == [0, 1, 2, 3]


def test_default_is_one_process() -> None:
    assert horovod.run(lambda: "alone") == ["alone"]


def test_arguments() -> None:
    def echo(*args: object, **kwargs: object) -> tuple[object, object]:
        return args, kwargs

    assert horovod.run(echo, (1, [2]), {"three": 3}, num_proc=2) == [((1, [2]), {"three": 3})] * 2


def test_closures_lambdas_partials_and_objects() -> None:
    offset = 10

    class Scale:
        def __init__(self, factor: int) -> None:
            self.factor = factor

        def __call__(self, value: int) -> int:
            return self.factor * value + offset

    assert horovod.run(lambda value: value + offset, (1,)) == [11]
    assert horovod.run(Scale(3), (2,)) == [16]
    assert horovod.run(functools.partial(Scale(3), value=4)) == [22]


def test_ranks_form_a_world() -> None:
    def total() -> float:
        import horovod.numpy as hvd

        hvd.init()
        return float(hvd.allreduce(np.array([hvd.rank() + 1.0]), op=hvd.Sum, name="x")[0])

    assert horovod.run(total, num_proc=3) == [6.0] * 3


def test_classes_of_the_script_survive_the_journey() -> None:
    """A class that only the caller has comes back as the same class."""
    code = """
import horovod
class Point:
    def __init__(self, x): self.x = x
def make(): return Point(7)
(point,) = horovod.run(make)
assert type(point) is Point and point.x == 7
(function,) = horovod.run(lambda: lambda: Point(8))
assert type(function()) is Point
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_modules_beside_the_script_are_found(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("def answer():\n    return 42\n")
    (tmp_path / "script.py").write_text("import horovod, beside\nprint(horovod.run(beside.answer, num_proc=2))\n")
    result = subprocess.run(
        [sys.executable, str(tmp_path / "script.py")], capture_output=True, text=True, cwd="/", timeout=60
    )
    assert result.stdout == "[42, 42]\n", result.stderr


def test_large_results() -> None:
    def large(count: int) -> dict[str, object]:
        data = np.arange(count, dtype=np.int64)
        return {"data": data, "total": int(data.sum()), "strided": data[:10:3], "small": np.ones(3)}

    count = 40_000_000  # 320 MB
    (result,) = horovod.run(large, (count,))
    assert result["data"].shape == (count,)
    assert int(result["data"].sum()) == result["total"] == count * (count - 1) // 2
    assert result["strided"].tolist() == [0, 3, 6, 9]
    result["data"][0] = result["small"][0] = 5  # arrays that came back can be written to


def test_large_arguments_reach_every_rank() -> None:
    data = np.arange(3_000_000)
    assert horovod.run(lambda values: int(values.sum()), (data,), num_proc=3) == [int(data.sum())] * 3


def test_exit_with_success_is_no_failure() -> None:
    def leave() -> None:
        sys.exit(0)

    assert horovod.run(leave, num_proc=2) == [None, None]


def test_output_goes_to_replaced_streams() -> None:
    def speak() -> None:
        rank = os.environ["HOROVOD_RANK"]
        print(f"out {rank} ä")
        print(f"err {rank}", file=sys.stderr)
        sys.stdout.write("50%\r100%\r")

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        horovod.run(speak, num_proc=2)
    for rank in range(2):
        assert f"[{rank}]<stdout>:out {rank} ä\n" in out.getvalue()
        assert f"[{rank}]<stdout>:50%\r[{rank}]<stdout>:100%\r" in out.getvalue()
        assert f"[{rank}]<stderr>:err {rank}\n" in err.getvalue()


def test_output_goes_to_the_descriptors_otherwise() -> None:
    code = "import horovod, os; horovod.run(lambda: (print('out'), os.write(2, b'err\\n')) and None)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60)
    assert (result.stdout, result.stderr) == (b"[0]<stdout>:out\n", b"[0]<stderr>:err\n")


def test_a_stream_that_fails_does_not_end_the_job() -> None:
    class Broken(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError("no space left")

    with contextlib.redirect_stdout(Broken()):
        assert horovod.run(lambda: print("x") or 1) == [1]


def test_output_filename(tmp_path: Path) -> None:
    horovod.run(lambda: print("kept"), num_proc=2, output_filename=str(tmp_path))
    for rank in range(2):
        assert (tmp_path / f"rank.{rank}" / "stdout").read_text() == f"[{rank}]<stdout>:kept\n"


def test_executable_is_the_python_of_the_workers(tmp_path: Path) -> None:
    script = tmp_path / "python"
    script.write_text(f'#!/bin/sh\nMARK=here exec {sys.executable} "$@"\n')
    script.chmod(0o755)
    assert horovod.run(lambda: os.environ.get("MARK"), executable=str(script)) == ["here"]


def test_two_runs_at_once(tmp_path: Path) -> None:
    """Two threads, each with a job that needs the other job to be running."""
    there, back = str(tmp_path / "there"), str(tmp_path / "back")
    os.mkfifo(there)
    os.mkfifo(back)

    def first() -> str:
        if os.environ["HOROVOD_RANK"] == "0":
            with open(there, "w") as pipe:
                pipe.write("first")
            with open(back) as pipe:
                return pipe.read()
        return "quiet"

    def second() -> str:
        if os.environ["HOROVOD_RANK"] == "0":
            with open(there) as pipe:
                heard = pipe.read()
            with open(back, "w") as pipe:
                pipe.write("second")
            return heard
        return "quiet"

    results: dict[str, list[str]] = {}

    def run(name: str, function: object) -> None:
        results[name] = horovod.run(function, num_proc=2)

    threads = [threading.Thread(target=run, args=each) for each in (("first", first), ("second", second))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {"first": ["second", "quiet"], "second": ["first", "quiet"]}


def test_a_run_inside_a_run() -> None:
    def outer() -> list[str]:
        return horovod.run(lambda: os.environ["HOROVOD_RANK"] + os.environ["HOROVOD_SIZE"], num_proc=2)

    assert horovod.run(outer, num_proc=3) == [["02", "12"]] * 3


def test_wrong_arguments() -> None:
    with pytest.raises(ValueError, match="hosts and hostfile"):
        horovod.run(int, hosts="localhost:1", hostfile="x")
    with pytest.raises(ValueError, match="use_gloo and use_mpi"):
        horovod.run(int, use_gloo=True, use_mpi=True)
    with pytest.raises(ValueError, match="num_proc=0"):
        horovod.run(int, num_proc=0)
    with pytest.raises(ValueError, match="expected a function, not a str"):
        horovod.run("int")
    with pytest.raises(ValueError, match="2 slots"):
        horovod.run(int, num_proc=3, hosts="localhost:2")  # the launcher's words


def test_a_function_that_cannot_be_sent() -> None:
    lock = threading.Lock()

    def holding() -> object:
        return lock

    with pytest.raises(ValueError, match=r"cannot send .*holding to the workers: TypeError: .*lock"):
        horovod.run(holding)


def test_deprecated_names() -> None:
    with pytest.warns(DeprecationWarning, match="np is deprecated, use num_proc"):
        assert len(horovod.run(int, np=2)) == 2
    with pytest.warns(DeprecationWarning, match="min_np is deprecated"), pytest.raises(ValueError):
        horovod.run(int, min_np=1, hosts="a:1", hostfile="b")
    with pytest.warns(DeprecationWarning, match="max_np is deprecated"), pytest.raises(ValueError):
        horovod.run(int, max_np=1, hosts="a:1", hostfile="b")
    with pytest.warns(DeprecationWarning, match="network_interface is deprecated"), pytest.raises(ValueError):
        horovod.run(int, network_interface="lo", hosts="a:1", hostfile="b")

"""When a rank fails, the caller learns which, where and why; nothing runs on."""

from __future__ import annotations

import os
import signal
import sys
import threading

import pytest
from callers import calling

import horovod
from horovod.runner.function.call import outcome, root_cause
from horovod.runner.function.server import Event
from horovod.runner.function.task import Report, Worker


def failure(function: object, num_proc: int = 2) -> RuntimeError:
    with pytest.raises(RuntimeError) as caught:
        horovod.run(function, num_proc=num_proc)
    return caught.value


def test_exception() -> None:
    def inner() -> None:
        raise KeyError("a strange key")

    def body() -> None:
        if os.environ["HOROVOD_RANK"] == "1":
            inner()
        signal.pause()

    error = failure(body, 3)
    text = str(error)
    assert text.startswith("rank 1 on localhost failed: KeyError: 'a strange key'\n")
    assert "Traceback (most recent call last):\n" in text
    assert "in inner\n" in text
    assert 'raise KeyError("a strange key")' in text
    assert "run_task" not in text
    assert isinstance(error.__cause__, KeyError)
    assert error.__cause__.args == ("a strange key",)


def test_exception_of_the_callers_own_class() -> None:
    code = """
class Odd(Exception):
    pass
def body():
    raise Odd("x", 3)
try:
    horovod.run(body)
except RuntimeError as error:
    assert type(error.__cause__) is Odd and error.__cause__.args == ("x", 3), error
    say("same class")
"""
    with calling(code, 0) as caller:
        out, err = caller.end()
    assert out == "same class\n", err


def test_exception_with_a_cause_shows_both_tracebacks() -> None:
    def body() -> None:
        try:
            raise OSError("the disk")
        except OSError as error:
            raise ValueError("the file") from error

    text = str(failure(body, 1))
    assert "OSError: the disk" in text
    assert "The above exception was the direct cause" in text
    assert text.endswith("ValueError: the file")


def test_exceptions_that_cannot_travel_are_told_in_words() -> None:
    def pickles_badly() -> None:
        class Odd(Exception):
            def __init__(self) -> None:
                super().__init__("odd")
                self.lock = threading.Lock()

        raise Odd

    def unpickles_badly() -> None:
        class Odd(Exception):
            def __init__(self, one: int, two: int) -> None:
                super().__init__("odd")

        raise Odd(1, 2)

    for function in (pickles_badly, unpickles_badly):
        error = failure(function, 1)
        assert "Odd: odd" in str(error)
        assert error.__cause__ is None


def test_exception_that_cannot_even_be_printed() -> None:
    def body() -> None:
        class Odd(Exception):
            def __str__(self) -> str:
                raise ValueError("no")

        raise Odd

    assert "rank 0 on localhost failed" in str(failure(body, 1))


def test_exit_code() -> None:
    def body() -> None:
        if os.environ["HOROVOD_RANK"] == "1":
            sys.exit(3)
        signal.pause()

    error = failure(body)
    assert str(error).startswith("rank 1 on localhost failed: SystemExit: 3\n")
    assert isinstance(error.__cause__, SystemExit)


@pytest.mark.parametrize(
    ("how", "words"),
    [("os._exit(5)", "exit code 5"), ("os.kill(os.getpid(), 9)", "SIGKILL"), ("os.abort()", "SIGABRT")],
)
def test_worker_that_ends_without_a_word(how: str, words: str) -> None:
    def body() -> None:
        if os.environ["HOROVOD_RANK"] == "1":
            exec(how, {"os": os})
        signal.pause()

    text = str(failure(body))
    assert text.startswith("rank 1 on localhost ended without a result; horovodrun said:\n")
    assert words in text


def test_worker_that_ends_in_silence() -> None:
    def body() -> None:
        if os.environ["HOROVOD_RANK"] == "1":
            os._exit(0)

    assert str(failure(body)).startswith("rank 1 on localhost ended without a result")


def test_death_inside_a_collective_names_the_dead() -> None:
    """The others fail too, with the error of the collective; that is not the cause."""

    def body() -> None:
        import numpy as np

        import horovod.numpy as hvd

        hvd.init()
        hvd.barrier()
        if hvd.rank() == 2:
            os.kill(os.getpid(), 9)
        hvd.allreduce(np.ones(3), name="never")

    assert str(failure(body, 3)).startswith("rank 2 on localhost ended without a result")


def test_exception_that_ends_the_others_collectives_is_the_cause() -> None:
    def body() -> None:
        import numpy as np

        import horovod.numpy as hvd

        hvd.init()
        hvd.barrier()
        if hvd.rank() == 2:
            raise ValueError("mine")
        hvd.allreduce(np.ones(3), name="never")

    assert str(failure(body, 3)).startswith("rank 2 on localhost failed: ValueError: mine")


def test_result_that_cannot_be_pickled() -> None:
    def body() -> object:
        return threading.Lock() if os.environ["HOROVOD_RANK"] == "1" else None

    text = str(failure(body))
    assert text.startswith(
        "rank 1 on localhost failed: TypeError: the result of rank 1, a _thread.lock, cannot be pickled"
    )


def test_result_that_cannot_be_unpickled() -> None:
    class Odd:
        def __reduce__(self) -> object:
            return int, ("not a number",)

    text = str(failure(lambda: Odd(), 1))
    assert text.startswith("cannot unpickle the result of rank 0 on localhost: ValueError: invalid literal")


def test_module_that_the_workers_do_not_have(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "only_here.py").write_text("def f():\n    return 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    import only_here

    monkeypatch.setattr("horovod.runner.function.server.own_paths", list)
    assert "ModuleNotFoundError: No module named 'only_here'" in str(failure(only_here.f, 1))


def test_python_that_cannot_be_started() -> None:
    with pytest.raises(RuntimeError, match=r"^the job failed before a worker reported; (.|\n)*no/such/python"):
        horovod.run(int, executable="/no/such/python")


def test_launcher_killed() -> None:
    def body() -> None:
        while os.getppid() != 1:  # the launcher proper is our parent, the visible process above it
            with open(f"/proc/{os.getppid()}/stat") as file:
                visible = int(file.read().rpartition(")")[2].split()[1])
            os.kill(visible, 9)
            signal.pause()

    text = str(failure(body, 1))
    assert text.startswith("rank 0 on localhost ended without a result")


# Which of several endings is the cause: decided by a pure function.

ONE, TWO, THREE = (Worker(rank, "h", 100 + rank) for rank in (1, 2, 3))
OWN = Report("ValueError: x", "...", consequence=False)
FOLLOWS = Report("HorovodInternalError: x", "...", consequence=True)


@pytest.mark.parametrize(
    ("events", "first_failed", "cause"),
    [
        ([], None, None),
        ([Event(ONE, "result")], None, None),
        ([Event(ONE, "error", report=OWN), Event(TWO, "error", report=FOLLOWS)], 2, 0),
        ([Event(ONE, "error", report=FOLLOWS), Event(TWO, "error", report=OWN)], 1, 1),
        ([Event(ONE, "lost"), Event(TWO, "error", report=OWN)], 1, 0),
        ([Event(ONE, "error", report=FOLLOWS), Event(TWO, "lost")], 2, 1),  # the news of the death was overtaken
        ([Event(ONE, "error", report=FOLLOWS), Event(TWO, "lost")], 1, 0),  # two was stopped by the launcher
        ([Event(ONE, "error", report=FOLLOWS), Event(TWO, "lost"), Event(THREE, "lost")], 3, 2),
        ([Event(ONE, "result"), Event(TWO, "lost")], None, 1),
        ([Event(ONE, "lost"), Event(TWO, "lost")], 2, 1),  # one was stopped because of two
        ([Event(ONE, "lost"), Event(TWO, "lost")], None, 0),
        ([Event(ONE, "lost"), Event(TWO, "error", report=OWN)], 2, 0),
    ],
)
def test_cause(events: list[Event], first_failed: int | None, cause: int | None) -> None:
    assert root_cause(events, first_failed) is (None if cause is None else events[cause])


def test_refusal_of_the_launcher_is_a_value_error() -> None:
    with pytest.raises(ValueError, match=r"^no such option$"):
        outcome([], 1, 2, "horovodrun: no such option")


def test_failure_before_any_worker() -> None:
    with pytest.raises(RuntimeError, match=r"^the job failed before a worker reported; horovodrun said:\nno ssh$"):
        outcome([], 1, 1, "no ssh")


def test_the_rank_that_failed_not_those_that_lost_it() -> None:
    """Rank 1 takes its time to leave; the others have failed, and ended, before."""

    def body() -> None:
        import atexit
        import time

        import numpy as np

        import horovod.numpy as hvd

        atexit.register(time.sleep, 0.5)
        hvd.init()
        if hvd.rank() == 1:
            raise ValueError("bad batch")
        hvd.allreduce(np.ones(4))

    error = failure(body, 3)
    assert str(error).startswith("rank 1 on localhost failed: ValueError: bad batch\n")
    assert isinstance(error.__cause__, ValueError)


def test_the_launcher_says_which_rank_was_killed() -> None:
    def body() -> None:
        import numpy as np

        import horovod.numpy as hvd

        hvd.init()
        if hvd.rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        hvd.allreduce(np.ones(4))

    assert str(failure(body, 3)).startswith("rank 1 on localhost ended without a result; horovodrun said:\n")

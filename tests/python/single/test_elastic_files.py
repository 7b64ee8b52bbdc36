"""Commits in files: written in the background, complete or not at all, and read after everything is gone."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from horovod.common.elastic import ObjectState, State, durable, run_fn
from horovod.common.elastic.durable import Origin


def make_state(rank: int = 0, **values: Any) -> Any:
    return ObjectState(bcast_object=lambda obj: obj, get_rank=lambda: rank, **values)


def test_a_new_process_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "commit"
    state = make_state(epoch=0, seen=[1])
    state.save_to(path)

    def train(state: Any) -> None:
        state.epoch, state.seen = 3, [1, 2]
        state.commit()
        state.epoch = 4  # not committed

    run_fn(train, lambda: None)(state)
    later = make_state(epoch=0, seen=[], new=5)
    assert later.resume_from(path)
    assert (later.epoch, later.seen, later.new) == (3, [1, 2], 5)
    assert later.progress().commits == 1
    later.epoch = 9
    later.restore()
    assert later.epoch == 3
    assert list(tmp_path.iterdir()) == [path]


def test_without_a_file_it_begins(tmp_path: Path) -> None:
    assert not make_state(epoch=0).resume_from(tmp_path / "none")


@pytest.mark.parametrize("length", [0, 5, 17, 40, -10, -1])
def test_a_truncated_file_is_refused(tmp_path: Path, length: int) -> None:
    path = tmp_path / "commit"
    durable.write(path, Origin(1), {"objects": b"x" * 100})
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(ValueError, match=r"damaged|not a file"):
        make_state().resume_from(path)
    durable.write(path, Origin(2), {"objects": b"x"})  # which is no reason not to save
    assert durable.read(path)[0].commits == 2


def test_a_file_of_another_job_has_to_be_named(tmp_path: Path) -> None:
    path = tmp_path / "commit"
    first = make_state(epoch=0)
    first.save_to(path, job="first")
    first.epoch = 3
    first.commit()
    first.finish_saving()
    second = make_state(epoch=0)
    with pytest.raises(ValueError, match=r'commit 1 of job "first".*resume_from\(..., job="first"\)'):
        second.resume_from(path)
    assert (second.epoch, second.progress().commits) == (0, 0)
    assert second.resume_from(path, job="first")
    assert second.epoch == 3


def test_one_that_left_does_not_overwrite_what_the_others_have_saved_since(tmp_path: Path) -> None:
    path = tmp_path / "commit"
    durable.write(path, Origin(5, job=1, run=7), {"objects": b"later"})
    durable.write(path, Origin(4, job=1, run=7), {"objects": b"before"})
    assert durable.read(path)[1] == {"objects": b"later"}
    durable.write(path, Origin(4, job=1, run=8), {"objects": b"begun again from an older copy"})
    assert durable.read(path)[0].run == 8


@pytest.mark.parametrize("position", [0, 30, -1])
def test_a_damaged_file_is_refused(tmp_path: Path, position: int) -> None:
    path = tmp_path / "commit"
    durable.write(path, Origin(1), {"objects": b"x" * 100})
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"damaged|not a file"):
        make_state().resume_from(path)


def test_every_nth_commit_and_the_last(tmp_path: Path) -> None:
    path = tmp_path / "commit"
    state = make_state(batch=0)
    state.save_to(path, every=3)
    found = []
    for state.batch in range(1, 6):
        state.commit()
        state._durable.finish()
        found.append(durable.read(path)[0].commits if path.exists() else 0)
    state.finish_saving()
    assert found == [0, 0, 3, 3, 3]
    assert durable.read(path)[0].commits == 5


def test_only_rank_0_writes(tmp_path: Path) -> None:
    state = make_state(rank=1, batch=0)
    state.save_to(tmp_path / "commit")
    state.commit()
    state.finish_saving()
    assert list(tmp_path.iterdir()) == []


def test_a_slow_disk_does_not_stop_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    may_write = threading.Event()
    write = durable.write

    def slow(*args: Any) -> None:
        may_write.wait()
        write(*args)

    monkeypatch.setattr(durable, "write", slow)
    path = tmp_path / "commit"
    state = make_state(values=[])
    state.save_to(path)
    for number in range(3):
        state.values.append(number)
        state.commit()
    assert not path.exists()
    may_write.set()
    state._durable.finish()
    first = make_state(values=None)
    first.resume_from(path)
    assert first.values == [0]  # as it was then, though the list was changed in place
    state.finish_saving()
    assert durable.read(path)[0].commits == 3


def test_a_full_disk_is_a_warning(tmp_path: Path) -> None:
    state = make_state(batch=0)
    state.save_to(tmp_path / "no such folder" / "commit")
    warned: list[str] = []
    state._durable._warn = warned.append
    state.commit()
    state._durable.finish()
    assert "cannot save commit 1" in warned[0]


def test_what_cannot_be_written_is_said_at_once(tmp_path: Path) -> None:
    state = State(bcast_object=lambda obj: obj, get_rank=lambda: 0)
    with pytest.raises(NotImplementedError, match="durable_values"):
        state.save_to(tmp_path / "commit")
    with pytest.raises(ValueError, match="every"):
        make_state().save_to(tmp_path / "commit", every=0)

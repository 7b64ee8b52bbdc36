"""The helpers of horovod.common.util, and the exceptions."""

from __future__ import annotations

import os
import sysconfig
from unittest.mock import MagicMock

import pytest

from horovod.common import util
from horovod.common.exceptions import HorovodInternalError, HorovodVersionMismatchError, HostsUpdatedInterrupt


def test_probes_answer_from_the_library() -> None:
    assert util.gloo_built() is True
    assert type(util.mpi_built()) is bool  # as mpicc is there or not; tests/python/mpi has more
    assert util.nccl_built() == 0
    assert util.ddl_built() is False
    assert util.ccl_built() is False
    assert util.extension_available("numpy")
    assert util.gpu_available("numpy") is False


def test_an_extension_for_a_framework_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert not util.extension_available("no_such_framework", verbose=True)
    assert "no_such_framework is not installed" in capsys.readouterr().out


def test_checks_of_extension_and_version() -> None:
    util.check_extension("horovod.torch", "HOROVOD_WITH_PYTORCH", __file__, "mpi_lib_v2")
    util.check_installed_version("torch", "2.0.0")
    with pytest.raises(ImportError, match="the cause"):
        util.check_installed_version("torch", "2.0.0", ImportError("the cause"))


def test_ext_suffix() -> None:
    assert util.get_ext_suffix() == sysconfig.get_config_var("EXT_SUFFIX")


def test_env_sets_and_restores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HVD_TEST_OLD", "before")
    monkeypatch.delenv("HVD_TEST_NEW", raising=False)
    with pytest.raises(KeyError), util.env(HVD_TEST_OLD="inside", HVD_TEST_NEW="new", HVD_TEST_NONE=None):
        assert os.environ["HVD_TEST_OLD"] == "inside"
        assert os.environ["HVD_TEST_NEW"] == "new"
        assert "HVD_TEST_NONE" not in os.environ
        raise KeyError
    assert os.environ["HVD_TEST_OLD"] == "before"
    assert "HVD_TEST_NEW" not in os.environ


@pytest.mark.parametrize(
    ("length", "parts", "sizes"), [(7, 3, [3, 2, 2]), (2, 4, [1, 1, 0, 0]), (0, 2, [0, 0]), (6, 3, [2, 2, 2])]
)
def test_split_list(length: int, parts: int, sizes: list[int]) -> None:
    values = list(range(length))
    split = util.split_list(values, parts)
    assert [len(part) for part in split] == sizes
    assert [value for part in split for value in part] == values


def test_powers_of_two() -> None:
    assert [n for n in range(-2, 20) if util.num_rank_is_power_2(n)] == [1, 2, 4, 8, 16]


def test_is_iterable() -> None:
    class Indexed:
        def __getitem__(self, index: int) -> int:
            return [1, 2][index]

    assert util.is_iterable([]) and util.is_iterable("") and util.is_iterable(Indexed())
    assert not util.is_iterable(3) and not util.is_iterable(None)


def test_version_comparison() -> None:
    assert util.is_version_greater_equal_than("1.10.0", "1.9.0")
    assert util.is_version_greater_equal_than("2.1.0+cu121", "2.1.0")
    assert not util.is_version_greater_equal_than("1.8.9", "1.9.0")
    for wrong in ("1.9", "1.9.0.0", 1.9, None):
        with pytest.raises(ValueError, match=r"x\.y\.z"):
            util.is_version_greater_equal_than("1.9.0", wrong)  # type: ignore[arg-type]


def test_cache_calls_once_per_argument() -> None:
    function = MagicMock(side_effect=lambda value: value + 1)
    cached = util._cache(function)
    assert [cached(1), cached(1), cached(2)] == [2, 2, 3]
    assert function.call_count == 2


def test_exceptions_have_their_bases_and_attributes() -> None:
    assert issubclass(HorovodInternalError, RuntimeError)
    interrupt = HostsUpdatedInterrupt(skip_sync=True)
    assert isinstance(interrupt, RuntimeError) and interrupt.skip_sync is True
    mismatch = HorovodVersionMismatchError("torch", "2.0.0", "2.1.0")
    assert isinstance(mismatch, ImportError)
    assert (mismatch.name, mismatch.version, mismatch.installed_version) == ("torch", "2.0.0", "2.1.0")
    assert "2.0.0" in str(mismatch) and "2.1.0" in str(mismatch)

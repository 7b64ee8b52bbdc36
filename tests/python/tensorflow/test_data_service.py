"""The data service: a compute job of its own with real dispatchers and workers, and these ranks as the training job."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import horovod.tensorflow as hvd
from horovod._generic.objects import allgather_object, broadcast_object
from horovod.runner.program import find
from horovod.tensorflow.data import compute_worker
from horovod.tensorflow.data.compute_service import TfDataServiceConfig, send_to_data_service, tf_data_service

ROOT = Path(__file__).parents[3]
CONFIG = TfDataServiceConfig(2, 3, "compute", {"lo": [("127.0.0.1", 4711)]}, b"\x01\xff" * 16, 30)


@contextlib.contextmanager
def compute_job(folder: Path, *options: str) -> Iterator[TfDataServiceConfig]:
    """A compute job of two ranks, started by rank 0 of this one, and ended by it as a training script does."""
    faulthandler.dump_traceback_later(240, exit=True)  # three processes have to import TensorFlow
    file = broadcast_object(str(folder / "compute.json"), 0, "data.folder")
    job = None
    if hvd.rank() == 0:
        outside = {key: value for key, value in os.environ.items() if "HOROVOD" not in key}
        command = [find(), "-np", "2", sys.executable, "-m", "horovod.tensorflow.data.compute_worker", file, *options]
        job = subprocess.Popen(
            command,
            env=outside | {"PYTHONPATH": str(ROOT / "python")},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
    try:
        config = TfDataServiceConfig.read(file, wait_for_file_creation=True)
        yield config
        allgather_object(hvd.rank(), "data.read")  # all ranks have read their elements
        if job is not None:
            config.compute_client().shutdown()
            output = job.communicate()[0].decode()
            assert job.returncode == 0, output
            assert not os.path.exists(file)
    finally:
        if job is not None and job.poll() is None:
            job.kill()
            print(job.communicate()[0].decode())


def elements(dataset: Any) -> list[int]:
    return sorted(int(each) for each in dataset)


def test_the_service_computes_datasets(tmp_path: Path) -> None:
    with compute_job(tmp_path, "--dispatchers", "2") as config:
        assert (config.dispatchers, config.workers_per_dispatcher, config.dispatcher_side) == (2, 1, "compute")
        dataset = tf.data.Dataset.range(20).map(lambda number: number * number)
        squares = [number * number for number in range(20)]
        assert elements(dataset.send_to_data_service(config, hvd.rank(), hvd.size())) == squares
        shared = send_to_data_service(dataset, config, 0, reuse_dataset=True)  # one dispatcher for all
        parts = allgather_object(elements(shared), "data.shared")
        assert sorted(number for part in parts for number in part) == squares


def test_dispatchers_on_the_training_side(tmp_path: Path) -> None:
    with compute_job(tmp_path, "--dispatcher-side", "training") as config:
        dataset = tf.data.Dataset.range(20).batch(2)
        with pytest.raises(RuntimeError, match="training side"):
            send_to_data_service(dataset, config, hvd.rank())
        with tf_data_service(config, hvd.rank()) as address:
            assert address.startswith("grpc://")
            service = tf.data.experimental.service.distribute("distributed_epoch", address, job_name="epoch")
            mine = np.concatenate([np.zeros(0, np.int64), *(each.numpy() for each in dataset.apply(service))])
            parts = allgather_object(mine.tolist(), "data.epoch")
        assert sorted(number for part in parts for number in part) == list(range(20))


def test_a_config_survives_its_file(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    assert TfDataServiceConfig.from_dict(CONFIG.to_dict()) == CONFIG
    assert CONFIG.to_dict()["key"] == "01ff" * 16
    CONFIG.write(str(file))
    assert TfDataServiceConfig.read(str(file)) == CONFIG
    assert stat.S_IMODE(file.stat().st_mode) == 0o600  # it holds the key
    assert list(tmp_path.iterdir()) == [file]


def test_a_missing_config_is_an_error_unless_waited_for(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        TfDataServiceConfig.read(str(tmp_path / "none"))


def test_dispatchers_divide_the_ranks(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="multiple"):
        compute_worker.main(hvd.size() + 1, "compute", str(tmp_path / "config"), 60)


def test_the_command_line() -> None:
    options = compute_worker.parse_arguments(["file"])
    assert vars(options) == {"configfile": "file", "dispatchers": 1, "dispatcher_side": "compute", "timeout": 60}
    options = compute_worker.parse_arguments(["f", "--dispatchers", "2", "--dispatcher-side", "training"])
    assert (options.dispatchers, options.dispatcher_side) == (2, "training")

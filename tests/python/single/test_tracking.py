"""horovod.tracking in jobs of two ranks, with the real TensorBoard, MLflow and Weights & Biases, offline."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from ranks import ROOT

pytest.importorskip("tensorboard", reason="tensorboard is not installed: make test installs it")

TORCH = """
import sys, torch
import horovod.torch as hvd
from horovod.tracking import MLflow, TensorBoard, Tracker, WandB
hvd.init()
torch.manual_seed(1)
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
with Tracker(TensorBoard("board"), MLflow(run_name="one"), WandB(project="horovod"), every=5) as tracker:
    for step in range(20):
        optimizer.zero_grad()
        loss = model(torch.ones(2, 3)).square().mean()
        loss.backward()
        optimizer.step()
        tracker.step(**{"loss": float(loss), "part(1)": {"step": step, "text": "left out", "nan": float("nan")}})
assert "tensorflow" not in sys.modules
assert ("mlflow" in sys.modules) == ("wandb" in sys.modules) == (hvd.rank() == 0)
"""
LIGHTNING = """
import torch
import pytorch_lightning as pl
import horovod.torch as hvd
from horovod.torch.lightning import HorovodStrategy
from horovod.tracking import TensorBoard
from horovod.tracking.lightning import MetricsCallback, callback_class
assert MetricsCallback is callback_class("pytorch_lightning")

class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 1)
    def training_step(self, batch, _):
        loss = self.layer(batch[0]).square().mean()
        self.log("loss", loss)
        return loss
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)

data = torch.utils.data.TensorDataset(torch.ones(24, 3))
trainer = pl.Trainer(strategy=HorovodStrategy(), accelerator="cpu", max_epochs=1, logger=False,
                     enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
                     callbacks=[MetricsCallback(TensorBoard("board"), every=3, all_ranks=True)])
trainer.fit(Model(), torch.utils.data.DataLoader(data, batch_size=2))
"""
KERAS = """
import keras, numpy as np
import horovod.keras as hvd
from horovod.tracking import TensorBoard
from horovod.tracking.keras import MetricsCallback
hvd.init()
keras.utils.set_random_seed(1)
model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1)])
model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), loss="mse")
model.fit(np.ones((12, 3)), np.ones((12, 1)), batch_size=2, epochs=1, verbose=0,
          callbacks=[MetricsCallback(TensorBoard("board"), every=2)])
"""
# What the packages themselves read from the folder, as JSON. Without TensorFlow, which TensorBoard would import.
READ = """
import json, pathlib, sys
sys.modules["tensorflow"] = None
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.util.tensor_util import make_ndarray
found = {}
for file in sorted(pathlib.Path("board").rglob("events.*")):
    steps = found.setdefault(str(file.parent), {})
    for event in EventFileLoader(str(file)).Load():
        for value in event.summary.value:
            steps.setdefault(event.step, {})[value.tag] = float(make_ndarray(value.tensor))
print(json.dumps(found))
"""
READ_MLFLOW = """
import json, mlflow
client = mlflow.MlflowClient()
(run,) = client.search_runs(["0"])
assert run.info.status == "FINISHED" and run.info.run_name == "one", run
history = {name: [(each.step, each.value) for each in client.get_metric_history(run.info.run_id, name)]
           for name in run.data.metrics}
print(json.dumps(history))
"""


@pytest.fixture(autouse=True)
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in {
        "PYTHONPATH": f"{ROOT}/python",
        "OMP_NUM_THREADS": "1",
        "KERAS_BACKEND": "torch",
        "WANDB_MODE": "offline",
        "MLFLOW_TRACKING_URI": (tmp_path / "mlflow").as_uri(),
        "MLFLOW_ALLOW_FILE_STORE": "true",
    }.items():
        monkeypatch.setenv(name, value)


def output_of(command: list[str]) -> str:
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def run(horovodrun: str, program: str) -> None:
    output_of([horovodrun, "-np", "2", sys.executable, "-c", program])


def board() -> dict[str, dict[int, dict[str, float]]]:
    found = json.loads(output_of([sys.executable, "-c", READ]))
    return {folder: {int(step): values for step, values in steps.items()} for folder, steps in found.items()}


def wandb_rows(file: Path) -> Iterator[dict[str, float]]:
    """The history in a file of Weights & Biases: 7 bytes, then records of protobuf in the format of LevelDB's log."""
    from wandb.proto.wandb_internal_pb2 import Record

    data = file.read_bytes()
    assert data[:4] == b":W&B"
    at, record = 7, b""
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:  # no head fits into the rest of the block
            at += 32768 - at % 32768
            continue
        length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        record += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part
            items = Record.FromString(record).history.item
            if items:
                yield {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}
            record = b""


def assert_has_times(values: dict[str, float]) -> None:
    assert 0 < values["horovod/step_seconds"] <= values["horovod/slowest_step_seconds"]
    assert values["horovod/steps_per_second"] == pytest.approx(1 / values["horovod/step_seconds"])
    assert values["horovod/size"] == 2
    assert values["horovod/resident_bytes"] > 1e6
    assert values["horovod/cache_misses"] > 0  # of hvd.metrics()


def test_a_loop_of_pytorch_logs_to_all_three(horovodrun: str, tmp_path: Path) -> None:
    run(horovodrun, TORCH)
    (steps,) = board().values()
    assert list(steps) == [5, 10, 15, 20]
    assert steps[20]["part(1)/step"] == 19
    assert steps[20]["loss"] < steps[5]["loss"]
    assert not [name for name in steps[20] if "text" in name or "nan" in name]
    assert_has_times(steps[10])
    history = json.loads(output_of([sys.executable, "-c", READ_MLFLOW]))
    assert history["part_1_/step"] == [[5, 4], [10, 9], [15, 14], [20, 19]]
    assert history["horovod/size"] == [[step, 2] for step in steps]
    (file,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    rows = list(wandb_rows(file))
    assert [row["horovod/step"] for row in rows] == [5, 10, 15, 20]
    for row in rows:
        assert row["loss"] == pytest.approx(steps[int(row["horovod/step"])]["loss"])
    assert_has_times(rows[1])


def test_lightning_logs_on_every_rank(horovodrun: str) -> None:
    run(horovodrun, LIGHTNING)
    found = board()
    assert list(found) == ["board/rank0", "board/rank1"]
    for steps in found.values():
        assert list(steps) == [3, 6]
        assert steps[6]["loss"] > 0
        assert_has_times(steps[6])


def test_keras_logs_on_rank_0(horovodrun: str) -> None:
    run(horovodrun, KERAS)
    (steps,) = board().values()
    assert list(steps) == [2, 4, 6]
    assert steps[6]["loss"] < steps[2]["loss"]
    assert_has_times(steps[4])


def test_what_is_missing_is_said(horovodrun: str) -> None:
    program = """
import sys
sys.modules["mlflow"] = None
import horovod.numpy as hvd
from horovod.tracking import MLflow, Tracker
hvd.init()
for arguments in ({}, {"every": 0}):
    try:
        Tracker(*([MLflow()] if arguments else []), **arguments)
    except ValueError as error:
        print(error)
try:
    Tracker(MLflow(), every=1).step()
except ImportError as error:
    print(error)
"""
    said = output_of([sys.executable, "-c", program])
    assert "a Tracker needs a writer" in said
    assert "every must be at least 1, not 0" in said
    assert "horovod.tracking.MLflow needs another package: pip install mlflow" in said

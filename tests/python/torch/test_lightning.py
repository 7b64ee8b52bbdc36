"""Lightning's Trainer with HorovodStrategy: trains as one process with all the data would."""

from __future__ import annotations

import copy
import logging
import warnings
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import EarlyStopping, ModelCheckpoint
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import horovod.torch as hvd
from horovod.torch.lightning import HorovodStrategy, strategy_class

SAMPLES, BATCH = 60, 5  # per rank: 12, or 8 batches of the 3rd part each
logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
pytestmark = pytest.mark.filterwarnings("ignore:.*does not have many workers.*")


def make_data() -> TensorDataset:
    random = torch.Generator().manual_seed(3)
    inputs = torch.randn(SAMPLES, 6, generator=random)
    return TensorDataset(inputs, inputs @ torch.randn(6, 2, generator=random))


class Model(pl.LightningModule):
    """Begins differently on every rank."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(hvd.rank())
        self.layers = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        self.validated: list[float] = []

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.layers(inputs)

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        return mse_loss(self.layers(batch[0]), batch[1])

    def validation_step(self, batch: list[torch.Tensor], _: int) -> None:
        loss = mse_loss(self.layers(batch[0]), batch[1])
        self.validated.append(float(loss))
        self.log("val_loss", loss, sync_dist=True)
        self.log("rank", float(hvd.rank()), sync_dist=True, reduce_fx="sum")

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)
        return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)]

    def train_dataloader(self) -> DataLoader[Any]:
        return DataLoader(make_data(), batch_size=BATCH)

    def val_dataloader(self) -> DataLoader[Any]:
        return DataLoader(make_data(), batch_size=BATCH)


def make_trainer(**options: Any) -> pl.Trainer:
    defaults = {
        "strategy": "horovod",
        "accelerator": "cpu",
        "max_epochs": 2,
        "limit_val_batches": 0,
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    return pl.Trainer(**{**defaults, **options})


def weights(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])


def assert_same_on_all_ranks(model: torch.nn.Module) -> None:
    everywhere = hvd.allgather(weights(model).unsqueeze(0))
    assert all(torch.equal(each, everywhere[0]) for each in everywhere)


def train_alone(epochs: int, accumulate: int = 1, clip: float | None = None) -> torch.Tensor:
    """The same training by one process: a batch is what all ranks together take."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    sampler = DistributedSampler(make_data(), 1, 0)  # Lightning gives each rank its part of the same order
    loader = DataLoader(make_data(), batch_size=BATCH * hvd.size(), sampler=sampler)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        optimizer.param_groups[0]["lr"] = 0.1 * 0.5**epoch
        for index, (inputs, targets) in enumerate(loader):
            (mse_loss(model(inputs), targets) / accumulate).backward()
            if (index + 1) % accumulate == 0 or index + 1 == len(loader):
                if clip is not None:
                    torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
                optimizer.step()
                optimizer.zero_grad()
    return weights(model)


@pytest.mark.parametrize(
    ("accumulate", "clip"), [(1, None), (1, 0.2), (4, None), (4, 0.2)], ids=["plain", "clip", "accumulate", "both"]
)
def test_trains_as_one_process_would(accumulate: int, clip: float | None) -> None:
    model = Model()
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*lr_scheduler.*")
        warnings.filterwarnings("error", message=".*synchronize.*")
        make_trainer(accumulate_grad_batches=accumulate, gradient_clip_val=clip).fit(model)
    assert_same_on_all_ranks(model)
    torch.testing.assert_close(weights(model), train_alone(2, accumulate, clip), rtol=1e-4, atol=1e-5)


def test_fitting_twice_and_looking_at_the_result() -> None:
    model = Model()
    strategy = HorovodStrategy()
    trainer = make_trainer(strategy=strategy, max_epochs=1)
    assert (trainer.world_size, trainer.global_rank, trainer.local_rank) == (hvd.size(), hvd.rank(), hvd.local_rank())
    trainer.fit(model)
    make_trainer(max_epochs=1, limit_val_batches=1.0).fit(model)
    assert_same_on_all_ranks(model)
    (metrics,) = make_trainer(limit_val_batches=1.0).validate(model, verbose=False)
    local = sum(model.validated[-SAMPLES // hvd.size() // BATCH :]) / (SAMPLES // hvd.size() // BATCH)
    assert metrics["val_loss"] == pytest.approx(float(hvd.allreduce(torch.tensor(local))), rel=1e-5)
    assert metrics["rank"] == sum(range(hvd.size())) * 12 // hvd.size(), "over ranks and batches"
    assert len(make_trainer().predict(model, DataLoader(make_data().tensors[0], batch_size=BATCH))) == 12 // hvd.size()


class Restless(Model):
    """Its early stopping would end at another epoch on every rank."""

    def on_train_epoch_end(self) -> None:
        self.log("mine", torch.tensor(float(self.current_epoch >= hvd.rank() + 1)))


def test_early_stopping_is_decided_together() -> None:
    model = Restless()
    stopping = EarlyStopping("mine", mode="max", patience=1, stopping_threshold=0.5, check_on_train_epoch_end=True)
    trainer = make_trainer(max_epochs=6, callbacks=[stopping])
    trainer.fit(model)
    assert hvd.allgather_object(trainer.current_epoch) == [2] * hvd.size(), "when the first wants to"


def test_checkpoints_are_written_by_rank_0_and_continued_from(tmp_path: Path) -> None:
    folder = Path(hvd.broadcast_object(str(tmp_path), 0))
    whole = Model()
    make_trainer(max_epochs=4).fit(whole)
    half = Model()
    writer = ModelCheckpoint(dirpath=folder, filename="half")
    make_trainer(max_epochs=2, enable_checkpointing=True, callbacks=[writer]).fit(half)
    assert [each.name for each in folder.iterdir()] == ["half.ckpt"]
    rest = Model()
    trainer = make_trainer(max_epochs=4)
    trainer.fit(rest, ckpt_path=str(folder / "half.ckpt"))
    assert trainer.optimizers[0].param_groups[0]["lr"] == pytest.approx(0.1 * 0.5**4)
    torch.testing.assert_close(weights(rest), weights(whole))
    assert_same_on_all_ranks(rest)
    plain = torch.load(folder / "half.ckpt", weights_only=False)
    fresh = Model()
    fresh.load_state_dict(plain["state_dict"])
    torch.optim.SGD(fresh.parameters(), lr=1.0, momentum=0.5).load_state_dict(plain["optimizer_states"][0])


class Adversaries(pl.LightningModule):
    """Two optimizers by hand; the loss of the one reaches the parameters of the other."""

    def __init__(self, toggle: bool) -> None:
        super().__init__()
        self.automatic_optimization = False
        torch.manual_seed(hvd.rank())
        self.first, self.second = torch.nn.Linear(6, 4), torch.nn.Linear(4, 2)
        self.toggle = toggle

    def training_step(self, batch: list[torch.Tensor], _: int) -> None:
        first, second = self.optimizers()
        if self.toggle:
            self.toggle_optimizer(first)
        loss = mse_loss(self.second(self.first(batch[0])), batch[1])
        first.zero_grad()
        self.manual_backward(loss)
        self.clip_gradients(first, 0.5)
        first.step()
        if self.toggle:
            self.untoggle_optimizer(first)
        loss = -mse_loss(self.second(self.first(batch[0]).detach()), batch[1])
        second.zero_grad()
        if self.toggle:
            self.manual_backward(loss)
        else:
            loss.backward()
        second.step()

    def configure_optimizers(self) -> Any:
        return (
            torch.optim.SGD(self.first.parameters(), lr=0.1),
            torch.optim.Adam(self.second.parameters(), lr=0.01),
        )

    def train_alone(self) -> torch.Tensor:
        torch.manual_seed(0)
        first, second = torch.nn.Linear(6, 4), torch.nn.Linear(4, 2)
        sgd, adam = torch.optim.SGD(first.parameters(), lr=0.1), torch.optim.Adam(second.parameters(), lr=0.01)
        sampler = DistributedSampler(make_data(), 1, 0)
        for inputs, targets in DataLoader(make_data(), batch_size=BATCH * hvd.size(), sampler=sampler):
            sgd.zero_grad()
            mse_loss(second(first(inputs)), targets).backward()
            torch.nn.utils.clip_grad_norm_(first.parameters(), 0.5)
            sgd.step()
            adam.zero_grad()
            (-mse_loss(second(first(inputs).detach()), targets)).backward()
            adam.step()
        return torch.cat([weights(first), weights(second)])


@pytest.mark.parametrize("toggle", [False, True])
def test_several_optimizers(toggle: bool) -> None:
    model = Adversaries(toggle)
    make_trainer(max_epochs=1).fit(model, DataLoader(make_data(), batch_size=BATCH))
    assert_same_on_all_ranks(model)
    torch.testing.assert_close(weights(model), model.train_alone(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "options",
    [{"compression": hvd.Compression.int8}, {"compression": hvd.Compression.fp16}, {"groups": 2}],
    ids=["int8", "fp16", "groups"],
)
def test_options_of_the_optimizer(options: dict[str, Any]) -> None:
    model = Model()
    make_trainer(strategy=HorovodStrategy(**options), precision="bf16-mixed").fit(model)
    assert_same_on_all_ranks(model)
    assert (weights(model) - train_alone(2)).norm() < 0.1 * train_alone(2).norm()


def test_what_lightning_asks_of_a_strategy() -> None:
    strategy = HorovodStrategy()
    mine = torch.tensor([float(hvd.rank())])
    assert strategy.reduce(mine).item() == (hvd.size() - 1) / 2
    assert strategy.reduce(torch.tensor(hvd.rank()), reduce_op="mean").item() == (hvd.size() - 1) / 2
    assert strategy.reduce(mine, reduce_op=torch.distributed.ReduceOp.MAX).item() == hvd.size() - 1
    assert strategy.reduce("text") == "text"
    with pytest.raises(ValueError, match="median"):
        strategy.reduce(mine, reduce_op="median")
    gathered = strategy.all_gather(mine.clone().requires_grad_(), sync_grads=True)
    assert gathered[:, 0].tolist() == list(range(hvd.size())) and gathered.requires_grad
    assert not strategy.all_gather(mine.clone().requires_grad_()).requires_grad
    assert strategy.broadcast({"rank": hvd.rank()} if hvd.rank() == 0 else None) == {"rank": 0}
    assert strategy.reduce_boolean_decision(hvd.rank() == 0, all=False)
    assert not strategy.reduce_boolean_decision(hvd.rank() == 0, all=True)
    assert strategy.is_global_zero == (hvd.rank() == 0)


def test_synchronised_batch_norm_is_horovods() -> None:
    with pytest.raises(ValueError, match=r"hvd\.SyncBatchNorm"):
        make_trainer(sync_batchnorm=True).fit(Model())


def test_the_class_belongs_to_the_lightning_in_use() -> None:
    assert HorovodStrategy is strategy_class("pytorch_lightning")
    assert issubclass(HorovodStrategy, pl.strategies.ParallelStrategy)
    assert copy.copy(HorovodStrategy().__class__) is HorovodStrategy
    with pytest.raises(ValueError, match="package"):
        strategy_class("lightning_fabric")

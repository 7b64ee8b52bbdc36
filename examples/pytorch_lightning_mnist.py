"""Lightning with Horovod: a small convolutional network on scikit-learn's handwritten digits.

    python examples/pytorch_lightning_mnist.py                       # one process
    horovodrun -np 2 python examples/pytorch_lightning_mnist.py      # two, half of every batch each

The line marked (hvd) is all that makes it distributed.
"""

import argparse
import logging
import tempfile
import warnings

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import EarlyStopping, ModelCheckpoint
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Subset, TensorDataset

from horovod.torch.lightning import HorovodStrategy

TRAINING = 1437  # of 1797 images; the others are for validation


class DigitsData(pl.LightningDataModule):
    """8x8 pixels, 0 to 1. Lightning gives each rank its part."""

    def __init__(self, batch: int) -> None:
        super().__init__()
        images, labels = load_digits(return_X_y=True)
        pixels = torch.tensor(images, dtype=torch.float32).view(-1, 1, 8, 8) / 16
        self.digits = TensorDataset(pixels, torch.tensor(labels))
        self.order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0)).tolist()
        self.batch = batch

    def train_dataloader(self) -> DataLoader[tuple[Tensor, ...]]:
        return DataLoader(Subset(self.digits, self.order[:TRAINING]), self.batch, shuffle=True, drop_last=True)

    def val_dataloader(self) -> DataLoader[tuple[Tensor, ...]]:
        return DataLoader(Subset(self.digits, self.order[TRAINING:]), self.batch)


class Digits(pl.LightningModule):
    """Learns to tell the digits apart."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate
        self.network = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(32 * 4 * 4, 64),
            nn.ReLU(),
            nn.Dropout(0.2),
            nn.Linear(64, 10),
        )

    def training_step(self, batch: list[Tensor], _: int) -> Tensor:
        images, labels = batch
        return functional.cross_entropy(self.network(images), labels)

    def validation_step(self, batch: list[Tensor], _: int) -> None:
        images, labels = batch
        scores = self.network(images)
        metrics = {
            "val_loss": functional.cross_entropy(scores, labels),
            "val_accuracy": (scores.argmax(dim=1) == labels).float().mean(),
        }
        self.log_dict(metrics, sync_dist=True)  # the mean over all ranks

    def on_train_epoch_end(self) -> None:
        if self.trainer.is_global_zero:
            loss = self.trainer.callback_metrics["val_loss"]
            print(f"epoch {self.current_epoch + 1}  validation loss {loss:.4f}", flush=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=self.rate)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch", type=int, default=64, help="images per step, over all ranks")
    parser.add_argument("--rate", type=float, default=2e-3, help="learning rate")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message=".*does not have many workers.*")
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)

    pl.seed_everything(1, verbose=False)
    strategy = HorovodStrategy()  # (hvd)
    checkpoint = ModelCheckpoint(dirpath=tempfile.mkdtemp(), monitor="val_loss")  # written by rank 0
    trainer = pl.Trainer(
        strategy=strategy,
        accelerator="auto",
        max_epochs=options.epochs,
        gradient_clip_val=1.0,
        callbacks=[checkpoint, EarlyStopping("val_loss", patience=2)],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    model, data = Digits(options.rate), DigitsData(options.batch // trainer.world_size)
    trainer.fit(model, data)
    (metrics,) = trainer.validate(model, data, ckpt_path="best", verbose=False)
    if trainer.is_global_zero:
        print(f"validation accuracy {metrics['val_accuracy']:.3f} with {trainer.world_size} ranks")


if __name__ == "__main__":
    main()

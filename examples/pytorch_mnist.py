"""Data-parallel training of a small convolutional network on handwritten digits, with PyTorch.

    python examples/pytorch_mnist.py                       # one process
    horovodrun -np 2 python examples/pytorch_mnist.py      # two: each takes half of the images

Trains with scikit-learn's small digits, or with the four files of MNIST in --data-dir, packed or not; nothing is
downloaded. The lines marked (hvd) are all that makes it distributed.
"""

import argparse
import gzip
import json
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import horovod.torch as hvd

Batches = DataLoader[tuple[torch.Tensor, ...]]
Share = DistributedSampler[tuple[torch.Tensor, ...]]


class Net(nn.Module):
    """Two convolutions and two dense layers, for images of 8 x 8 pixels and more."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveMaxPool2d(4),
            nn.Flatten(),
        )
        self.classes = nn.Sequential(nn.Linear(64 * 16, 128), nn.ReLU(), nn.Dropout(0.25), nn.Linear(128, 10))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.classes(self.features(images))
        return scores


def read_idx(path: Path) -> torch.Tensor:
    """A file of MNIST: two zero bytes, the type (8: bytes), the number of dimensions, each as 4 bytes, the values."""
    packed = path.with_name(path.name + ".gz")
    content = path.read_bytes() if path.exists() else gzip.decompress(packed.read_bytes())
    dimensions = content[3]
    shape = np.frombuffer(content, ">i4", dimensions, offset=4)
    return torch.from_numpy(np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(shape).copy())


def load_data(folder: Path | None) -> tuple[TensorDataset, TensorDataset]:
    """Images (one channel, 0 to 1) and their digits, to train and to test with; the same on every rank."""
    if folder is not None:
        images, labels, test_images, test_labels = (
            read_idx(folder / name)
            for name in (
                "train-images-idx3-ubyte",
                "train-labels-idx1-ubyte",
                "t10k-images-idx3-ubyte",
                "t10k-labels-idx1-ubyte",
            )
        )
        return (
            TensorDataset(images[:, None].float() / 255, labels.long()),
            TensorDataset(test_images[:, None].float() / 255, test_labels.long()),
        )
    from sklearn.datasets import load_digits

    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    pixels = torch.from_numpy((digits.images[order] / 16).astype(np.float32))[:, None]
    numbers = torch.from_numpy(digits.target[order].astype(np.int64))
    return TensorDataset(pixels[:1437], numbers[:1437]), TensorDataset(pixels[1437:], numbers[1437:])


def batches(data: TensorDataset, size: int, shuffle: bool) -> tuple[Batches, Share]:
    """Those of this rank."""
    sampler: Share = DistributedSampler(data, num_replicas=hvd.size(), rank=hvd.rank(), shuffle=shuffle)  # (hvd)
    return DataLoader(data, batch_size=size, sampler=sampler), sampler


def train_epoch(
    model: nn.Module, optimizer: torch.optim.Optimizer, loader: Batches, epoch: int, device: torch.device, interval: int
) -> None:
    model.train()
    images_of_rank = len(loader.sampler)  # type: ignore[arg-type]
    seen = 0
    for number, (images, labels) in enumerate(loader):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images.to(device)), labels.to(device))
        loss.backward()  # (hvd) gradients are averaged while the layers below are still being computed
        optimizer.step()
        if interval and number % interval == 0 and hvd.rank() == 0:
            share = 100.0 * number / len(loader)
            print(f"Train Epoch: {epoch} [{seen}/{images_of_rank} ({share:.0f}%)]\tLoss: {loss.item():.6f}", flush=True)
        seen += len(images)


def average(value: float, name: str) -> float:
    return float(hvd.allreduce(torch.tensor(value, dtype=torch.float64), name=name, op=hvd.Average))  # (hvd)


@torch.no_grad()
def test(model: nn.Module, loader: Batches, device: torch.device) -> tuple[float, float]:
    """Loss and accuracy over the test images of all ranks."""
    model.eval()
    loss = right = images_seen = 0.0
    for images, labels in loader:
        scores, wanted = model(images.to(device)), labels.to(device)
        loss += float(F.cross_entropy(scores, wanted, reduction="sum"))
        right += float((scores.argmax(1) == wanted).sum())
        images_seen += len(labels)
    return average(loss / images_seen, "test_loss"), average(right / images_seen, "test_accuracy")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch-size", type=int, default=64, help="images per step and rank (default: %(default)s)")
    parser.add_argument("--test-batch-size", type=int, default=1000, help="default: %(default)s")
    parser.add_argument("--epochs", type=int, default=10, help="default: %(default)s")
    parser.add_argument("--lr", type=float, default=0.01, help="learning rate of one rank (default: %(default)s)")
    parser.add_argument("--momentum", type=float, default=0.5, help="default: %(default)s")
    parser.add_argument("--no-cuda", action="store_true", help="do not use GPUs")
    parser.add_argument("--seed", type=int, default=42, help="default: %(default)s")
    parser.add_argument("--log-interval", type=int, default=10, help="steps between two lines; 0: none")
    parser.add_argument("--fp16-allreduce", action="store_true", help="send gradients as float16")
    parser.add_argument("--use-adasum", action="store_true", help="combine gradients with Adasum")
    parser.add_argument("--gradient-predivide-factor", type=float, default=1.0, help="default: %(default)s")
    parser.add_argument("--data-dir", type=Path, help="folder with the files of MNIST (default: scikit-learn's digits)")
    parser.add_argument("--report", type=Path, help="write accuracy and speed to this JSON file")
    return parser.parse_args()


def main() -> None:
    options = parse_arguments()
    hvd.init()  # (hvd)
    torch.manual_seed(options.seed)
    device = torch.device("cpu")
    if torch.cuda.is_available() and not options.no_cuda:
        device = torch.device("cuda", hvd.local_rank())  # (hvd) one GPU per rank
        torch.cuda.set_device(device)

    train_data, test_data = load_data(options.data_dir)
    train_loader, train_sampler = batches(train_data, options.batch_size, shuffle=True)
    test_loader, _ = batches(test_data, options.test_batch_size, shuffle=False)

    model = Net().to(device)
    # (hvd) A step sees the images of all ranks, so it may be as much longer. Adasum finds the length itself.
    rate = options.lr if options.use_adasum else options.lr * hvd.size()
    optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=options.momentum)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)  # (hvd) start from the same weights everywhere
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)  # (hvd)
    optimizer = hvd.DistributedOptimizer(  # (hvd)
        optimizer,
        named_parameters=model.named_parameters(),
        compression=hvd.Compression.fp16 if options.fp16_allreduce else hvd.Compression.none,
        op=hvd.Adasum if options.use_adasum else hvd.Average,
        gradient_predivide_factor=options.gradient_predivide_factor,
    )

    speeds = []
    accuracy = 0.0
    for epoch in range(1, options.epochs + 1):
        train_sampler.set_epoch(epoch)
        began = time.perf_counter()
        train_epoch(model, optimizer, train_loader, epoch, device, options.log_interval)
        speeds.append(len(train_data) / (time.perf_counter() - began))
        loss, accuracy = test(model, test_loader, device)
        if hvd.rank() == 0:
            print(
                f"Test set: Average loss: {loss:.4f}, Accuracy: {accuracy:.2%}, "
                f"epoch {epoch} of {options.epochs}, {speeds[-1]:.0f} img/sec",
                flush=True,
            )
    if options.report and hvd.rank() == 0:
        steady = sorted(speeds[1:] or speeds)  # the first epoch warms up
        result = {"ranks": hvd.size(), "accuracy": accuracy, "images_per_second": steady[len(steady) // 2]}
        options.report.write_text(json.dumps(result))


if __name__ == "__main__":
    main()

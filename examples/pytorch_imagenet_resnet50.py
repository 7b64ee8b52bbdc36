"""Trains ResNet-50 on ImageNet, or on any pictures in one folder per class, with checkpoints to resume from.

    horovodrun -np 4 python examples/pytorch_imagenet_resnet50.py --train-dir imagenet/train --val-dir imagenet/val

The recipe for large batches (Goyal et al. 2017): the learning rate grows with the number of ranks, is warmed up to that
over the first epochs, and falls tenfold after 30, 60 and 80. Started again, a job goes on after its last checkpoint,
with as many ranks as it then has.
"""

import argparse
import json
import math
import random
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from image_folder import ImageFolder
from resnet import MODELS
from torch import nn
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

import horovod.torch as hvd

Batches = DataLoader[tuple[torch.Tensor, int]]


class Metric:
    """The mean of a figure over the batches of all ranks."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._sum = torch.zeros(2, dtype=torch.float64)  # of the values and of their weights

    def update(self, mean: float, weight: int) -> None:
        self._sum += torch.tensor([mean * weight, weight], dtype=torch.float64)

    def average(self) -> float:
        total, weight = hvd.allreduce(self._sum, name=self._name, op=hvd.Sum).tolist()
        return float(total / weight)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train-dir", type=Path, required=True, help="pictures to train with, one folder per class")
    parser.add_argument("--val-dir", type=Path, required=True, help="pictures to test with, the same folders")
    parser.add_argument("--log-dir", type=Path, help="write a line of JSON per epoch to metrics.jsonl there")
    parser.add_argument("--checkpoint-format", default="./checkpoint-{epoch}.pth.tar", help="default: %(default)s")
    parser.add_argument("--model", choices=MODELS, default="resnet50", help="default: %(default)s")
    parser.add_argument("--image-size", type=int, default=224, help="default: %(default)s")
    parser.add_argument("--workers", type=int, default=4, help="processes that read pictures, per rank")
    parser.add_argument("--fp16-allreduce", action="store_true", help="send gradients as float16")
    parser.add_argument(
        "--batches-per-allreduce", type=int, default=1, help="batches whose gradients are added up before a step"
    )
    parser.add_argument("--use-adasum", action="store_true", help="combine gradients with Adasum")
    parser.add_argument("--gradient-predivide-factor", type=float, default=1.0, help="default: %(default)s")
    parser.add_argument("--batch-size", type=int, default=32, help="pictures per batch and rank (default: %(default)s)")
    parser.add_argument("--val-batch-size", type=int, default=32, help="default: %(default)s")
    parser.add_argument("--epochs", type=int, default=90, help="default: %(default)s")
    parser.add_argument("--base-lr", type=float, default=0.0125, help="learning rate of one batch of one rank")
    parser.add_argument("--warmup-epochs", type=float, default=5, help="default: %(default)s")
    parser.add_argument("--momentum", type=float, default=0.9, help="default: %(default)s")
    parser.add_argument("--wd", type=float, default=0.00005, help="weight decay")
    parser.add_argument("--no-cuda", action="store_true", help="do not use GPUs")
    parser.add_argument("--seed", type=int, default=42, help="default: %(default)s")
    return parser.parse_args()


def rate_factor(epoch: float, warmup: float, scale: int) -> float:
    """What the base learning rate is multiplied with: `scale`, once it is warmed up. `epoch` counts in fractions."""
    if epoch < warmup:
        return 1 + (scale - 1) * epoch / warmup
    return float(scale * 10.0 ** -sum(epoch >= milestone for milestone in (30, 60, 80)))


def train_epoch(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    loader: Batches,
    batch_size: int,
    set_rate: Callable[[float], None],
) -> tuple[float, float]:
    """Loss and accuracy of the epoch; `set_rate` gets the finished fraction of it."""
    model.train()
    device = next(model.parameters()).device
    loss, accuracy = Metric("train_loss"), Metric("train_accuracy")
    for number, (images, labels) in enumerate(loader):
        set_rate(number / len(loader))
        images, labels = images.to(device), labels.to(device)
        optimizer.zero_grad()
        # Gradients add up over the parts and are sent while the last one is computed. The last batch of an epoch may
        # have fewer parts; then the step sends them.
        parts = math.ceil(len(images) / batch_size)
        for part_images, part_labels in zip(images.split(batch_size), labels.split(batch_size), strict=True):
            scores = model(part_images)
            part_loss = F.cross_entropy(scores, part_labels)
            (part_loss / parts).backward()
            loss.update(part_loss.item(), len(part_labels))
            accuracy.update((scores.argmax(1) == part_labels).float().mean().item(), len(part_labels))
        optimizer.step()
    return loss.average(), accuracy.average()


@torch.no_grad()
def validate(model: nn.Module, loader: Batches) -> tuple[float, float]:
    model.eval()
    device = next(model.parameters()).device
    loss, accuracy = Metric("val_loss"), Metric("val_accuracy")
    for images, labels in loader:
        scores, wanted = model(images.to(device)), labels.to(device)
        loss.update(F.cross_entropy(scores, wanted).item(), len(wanted))
        accuracy.update((scores.argmax(1) == wanted).float().mean().item(), len(wanted))
    return loss.average(), accuracy.average()


def last_checkpoint(form: str, epochs: int) -> int:
    """How many epochs an earlier run has done, as rank 0 finds its files; the others may not see them."""
    found = next((epoch for epoch in range(epochs, 0, -1) if Path(form.format(epoch=epoch)).exists()), 0)
    done: int = hvd.broadcast_object(found, root_rank=0, name="last_checkpoint")
    return done


def batches(options: argparse.Namespace, training: bool) -> Batches:
    """Those of this rank."""
    folder, size = (options.train_dir, options.batch_size) if training else (options.val_dir, options.val_batch_size)
    data = ImageFolder(folder, options.image_size, training)
    return DataLoader(
        data,
        batch_size=size * (options.batches_per_allreduce if training else 1),
        sampler=DistributedSampler(data, num_replicas=hvd.size(), rank=hvd.rank(), shuffle=training),
        num_workers=options.workers,
        # A fork of a process with threads may inherit their locks.
        multiprocessing_context="forkserver" if options.workers else None,
        persistent_workers=options.workers > 0,
    )


def main() -> None:
    options = parse_arguments()
    hvd.init()
    torch.manual_seed(options.seed)
    random.seed(options.seed + hvd.rank())  # where pictures are cut
    device = torch.device("cpu")
    if torch.cuda.is_available() and not options.no_cuda:
        device = torch.device("cuda", hvd.local_rank())
        torch.cuda.set_device(device)
        torch.backends.cudnn.benchmark = True

    train_loader, val_loader = batches(options, training=True), batches(options, training=False)
    assert isinstance(train_loader.sampler, DistributedSampler) and isinstance(train_loader.dataset, ImageFolder)
    model = MODELS[options.model](len(train_loader.dataset.classes)).to(device)
    # What a step sees of pictures, against one batch of one rank. Adasum finds the length of the step itself.
    scale = options.batches_per_allreduce * (1 if options.use_adasum else hvd.size())
    optimizer: torch.optim.Optimizer = torch.optim.SGD(
        model.parameters(), lr=options.base_lr * scale, momentum=options.momentum, weight_decay=options.wd
    )
    optimizer = hvd.DistributedOptimizer(
        optimizer,
        named_parameters=model.named_parameters(),
        compression=hvd.Compression.fp16 if options.fp16_allreduce else hvd.Compression.none,
        backward_passes_per_step=options.batches_per_allreduce,
        op=hvd.Adasum if options.use_adasum else hvd.Average,
        gradient_predivide_factor=options.gradient_predivide_factor,
    )

    done = last_checkpoint(options.checkpoint_format, options.epochs)
    if done and hvd.rank() == 0:
        checkpoint = torch.load(options.checkpoint_format.format(epoch=done), map_location=device)
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        print(f"goes on after epoch {done}", flush=True)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)

    for epoch in range(done, options.epochs):
        train_loader.sampler.set_epoch(epoch)

        def set_rate(part: float, epoch: int = epoch) -> None:
            for group in optimizer.param_groups:
                group["lr"] = options.base_lr * rate_factor(epoch + part, options.warmup_epochs, scale)

        loss, accuracy = train_epoch(model, optimizer, train_loader, options.batch_size, set_rate)
        val_loss, val_accuracy = validate(model, val_loader)
        if hvd.rank() != 0:
            continue
        print(
            f"Epoch #{epoch + 1}: loss {loss:.4f}, accuracy {accuracy:.2%}, "
            f"validation loss {val_loss:.4f}, validation accuracy {val_accuracy:.2%}",
            flush=True,
        )
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(state, options.checkpoint_format.format(epoch=epoch + 1))
        if options.log_dir:
            options.log_dir.mkdir(parents=True, exist_ok=True)
            record = {"epoch": epoch + 1, "loss": loss, "accuracy": accuracy}
            record |= {"val_loss": val_loss, "val_accuracy": val_accuracy}
            with (options.log_dir / "metrics.jsonl").open("a") as file:
                print(json.dumps(record), file=file)


if __name__ == "__main__":
    main()

"""Elastic training of a small convolutional network on handwritten digits, with PyTorch: hosts may come and go.

    horovodrun -np 2 --min-np 1 --max-np 4 -H localhost:4 python examples/elastic/pytorch_mnist_elastic.py
    horovodrun -np 2 --min-np 1 --host-discovery-script ./hosts.sh python examples/elastic/pytorch_mnist_elastic.py

Kill one of the processes, or have the script print other hosts, and see it go on. What is more than in
examples/pytorch_mnist.py is marked (elastic); docs/elastic.md explains it. Trains with scikit-learn's small digits.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

import horovod.torch as hvd
from horovod.torch.elastic import ElasticDataLoader, ElasticSampler, TorchState

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from pytorch_mnist import Net, load_data


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch-size", type=int, default=64, help="images per step and rank (default: %(default)s)")
    parser.add_argument("--epochs", type=int, default=10, help="default: %(default)s")
    parser.add_argument("--lr", type=float, default=0.01, help="learning rate of one rank (default: %(default)s)")
    parser.add_argument("--momentum", type=float, default=0.5, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=42, help="default: %(default)s")
    parser.add_argument("--batches-per-commit", type=int, default=1, help="default: %(default)s")
    parser.add_argument("--data-dir", type=Path, help="folder with the files of MNIST (default: scikit-learn's digits)")
    parser.add_argument("--save-to", type=Path, help="also keep commits in this file, and go on from it if it is there")
    return parser.parse_args()


@torch.no_grad()
def accuracy(model: torch.nn.Module, images: torch.Tensor, labels: torch.Tensor) -> float:
    model.eval()
    right = (model(images).argmax(1) == labels).float().mean()
    model.train()
    return float(right)


@hvd.elastic.run  # (elastic) called again whenever the world has changed
def train(state: Any, loader: ElasticDataLoader, options: argparse.Namespace, test: Any) -> None:
    state.model.train()
    while state.epoch < options.epochs:
        for images, labels in loader:  # (elastic) continues in the middle of an epoch
            state.optimizer.zero_grad()
            F.cross_entropy(state.model(images), labels).backward()
            state.optimizer.step()
            state.batch += 1
            if state.batch % options.batches_per_commit == 0:
                state.commit()  # (elastic) what a failure goes back to
            else:
                state.check_host_updates()  # (elastic) hosts may change here too, without going back
        state.epoch += 1
        state.sampler.set_epoch(state.epoch)  # (elastic) at the end of an epoch
        if hvd.rank() == 0:
            print(f"epoch {state.epoch}: {hvd.size()} ranks, accuracy {accuracy(state.model, *test):.2%}", flush=True)
        state.commit()


def main() -> None:
    options = parse_arguments()
    hvd.init()
    torch.manual_seed(options.seed)
    data, test_data = load_data(options.data_dir)
    model = Net()
    sampler = ElasticSampler(data)  # (elastic) divides what is left of an epoch over the ranks there are
    loader = ElasticDataLoader(data, options.batch_size, sampler)  # (elastic) and keeps the account
    sgd = torch.optim.SGD(model.parameters(), lr=options.lr * hvd.size(), momentum=options.momentum)
    optimizer = hvd.DistributedOptimizer(sgd, named_parameters=model.named_parameters())

    # (elastic) what survives; no broadcast of parameters: the state is the same everywhere before training begins
    state: Any = TorchState(model, optimizer, sampler=sampler, epoch=0, batch=0)

    def on_new_world() -> None:  # (elastic) a step sees the images of all ranks, of which there are more or fewer now
        for group in optimizer.param_groups:
            group["lr"] = options.lr * hvd.size()

    state.register_reset_callbacks([on_new_world])
    if options.save_to is not None:
        state.resume_from(options.save_to)  # (elastic) after the whole job was lost
        state.save_to(options.save_to)
    train(state, loader, options, test_data.tensors)


if __name__ == "__main__":
    main()

"""Data-parallel training with torch.distributed alone, as torchrun's tutorials have it; only the backend's name is new.

    horovodrun -np 2 python examples/pytorch_ddp.py
    torchrun --nproc-per-node 2 examples/pytorch_ddp.py
    torchrun --nproc-per-node 2 examples/pytorch_ddp.py --backend gloo     # for comparison

Trains the network of pytorch_mnist.py with scikit-learn's small digits.
"""

import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F
from pytorch_mnist import Net, load_data
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

import horovod.torch.distributed  # noqa: F401 - makes the backend "hvd" known


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="hvd")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--lr", type=float, default=0.05)
    arguments = parser.parse_args()

    dist.init_process_group(arguments.backend)
    torch.manual_seed(1)
    train_data, test_data = load_data(None)
    sampler: DistributedSampler[tuple[torch.Tensor, ...]] = DistributedSampler(train_data)
    loader = DataLoader(train_data, batch_size=64, sampler=sampler)
    model = DistributedDataParallel(Net())
    optimizer = torch.optim.SGD(model.parameters(), lr=arguments.lr, momentum=0.9)
    for epoch in range(arguments.epochs):
        sampler.set_epoch(epoch)
        for images, digits in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(images), digits).backward()
            optimizer.step()

    model.eval()
    with torch.no_grad():
        images, digits = test_data.tensors
        part = slice(dist.get_rank(), None, dist.get_world_size())
        counts = torch.tensor([(model(images[part]).argmax(1) == digits[part]).sum(), len(digits[part])])
    dist.all_reduce(counts)
    if dist.get_rank() == 0:
        print(f"Accuracy: {100 * counts[0] / counts[1]:.1f}% on {dist.get_world_size()} ranks, {dist.get_backend()}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

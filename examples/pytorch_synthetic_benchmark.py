"""How many images per second do the ranks of a job train together? Random images, so that only computing and
communication count.

    horovodrun -np 2 python examples/pytorch_synthetic_benchmark.py --model resnet18 --batch-size 8

Prints the rate of one process and of all together, with 1.96 standard deviations of the iterations.
"""

import argparse
import statistics
import time

import torch
import torch.nn.functional as F
from resnet import MODELS

import horovod.torch as hvd


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fp16-allreduce", action="store_true", help="send gradients as float16")
    parser.add_argument("--model", choices=MODELS, default="resnet50", help="default: %(default)s")
    parser.add_argument("--batch-size", type=int, default=32, help="images per step and rank (default: %(default)s)")
    parser.add_argument("--image-size", type=int, default=224, help="pixels of each side (default: %(default)s)")
    parser.add_argument("--num-warmup-batches", type=int, default=10, help="default: %(default)s")
    parser.add_argument("--num-batches-per-iter", type=int, default=10, help="default: %(default)s")
    parser.add_argument("--num-iters", type=int, default=10, help="default: %(default)s")
    parser.add_argument("--no-cuda", action="store_true", help="do not use GPUs")
    parser.add_argument("--use-adasum", action="store_true", help="combine gradients with Adasum")
    return parser.parse_args()


def main() -> None:
    options = parse_arguments()
    hvd.init()
    cuda = torch.cuda.is_available() and not options.no_cuda
    device = torch.device("cpu")
    if cuda:
        device = torch.device("cuda", hvd.local_rank())
        torch.cuda.set_device(device)
        torch.backends.cudnn.benchmark = True

    model = MODELS[options.model](1000).to(device)
    optimizer: torch.optim.Optimizer = torch.optim.SGD(
        model.parameters(), lr=0.01 if options.use_adasum else 0.01 * hvd.size()
    )
    optimizer = hvd.DistributedOptimizer(
        optimizer,
        named_parameters=model.named_parameters(),
        compression=hvd.Compression.fp16 if options.fp16_allreduce else hvd.Compression.none,
        op=hvd.Adasum if options.use_adasum else hvd.Average,
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)

    images = torch.randn(options.batch_size, 3, options.image_size, options.image_size, device=device)
    labels = torch.randint(1000, (options.batch_size,), device=device)

    def train(steps: int) -> float:
        """Seconds for this many steps."""
        began = time.perf_counter()
        for _ in range(steps):
            optimizer.zero_grad()
            F.cross_entropy(model(images), labels).backward()
            optimizer.step()
        if cuda:
            torch.cuda.synchronize()
        return time.perf_counter() - began

    def say(text: str) -> None:
        if hvd.rank() == 0:
            print(text, flush=True)

    kind = "GPU" if cuda else "CPU"
    say(f"Model: {options.model}")
    say(f"Batch size: {options.batch_size}")
    say(f"Number of {kind}s: {hvd.size()}")
    say("Running warmup...")
    train(options.num_warmup_batches)
    say("Running benchmark...")
    rates = []
    for number in range(options.num_iters):
        rates.append(options.batch_size * options.num_batches_per_iter / train(options.num_batches_per_iter))
        say(f"Iter #{number}: {rates[-1]:.1f} img/sec per {kind}")
    mean, spread = statistics.fmean(rates), 1.96 * statistics.pstdev(rates)
    say(f"Img/sec per {kind}: {mean:.1f} +-{spread:.1f}")
    say(f"Total img/sec on {hvd.size()} {kind}(s): {hvd.size() * mean:.1f} +-{hvd.size() * spread:.1f}")


if __name__ == "__main__":
    main()

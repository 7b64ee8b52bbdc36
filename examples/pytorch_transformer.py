"""A tiny transformer with mixed precision and compressed gradients. It learns to reverse sequences of letters.

    python examples/pytorch_transformer.py                                            # one process
    horovodrun -np 2 python examples/pytorch_transformer.py --compression int8        # two, a quarter of the bytes

The lines marked (hvd) are all that makes it distributed; those marked (amp) are PyTorch's usual loop with autocast and
GradScaler. The scaler does nothing with bfloat16; with --dtype float16 it is what keeps small gradients.
"""

import argparse
import time
from typing import Any

import torch
from torch import Tensor, nn

import horovod.torch as hvd

LETTERS, LENGTH = 26, 8
SEPARATOR = LETTERS  # after it the model is to write the letters backwards
COMPRESSIONS: dict[str, Any] = {
    "none": hvd.Compression.none,
    "fp16": hvd.Compression.fp16,
    "bf16": hvd.Compression.bf16,
    "int8": hvd.Compression.int8,
    "topk": hvd.Compression.topk(ratio=0.05),
    "powersgd": hvd.Compression.powersgd(rank=4),
}


def make_batch(count: int, random: torch.Generator) -> tuple[Tensor, Tensor]:
    """What the model reads, `abc|cb`, and the letters it should write after the separator, `cba`."""
    letters = torch.randint(LETTERS, (count, LENGTH), generator=random)
    answer = letters.flip(1)
    separator = torch.full((count, 1), SEPARATOR)
    return torch.cat([letters, separator, answer[:, :-1]], dim=1), answer


class Transformer(nn.Module):
    """Two layers of attention to everything before."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.letters = nn.Embedding(LETTERS + 1, width)
        self.places = nn.Embedding(2 * LENGTH, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.scores = nn.Linear(width, LETTERS)

    def forward(self, letters: Tensor) -> Tensor:
        values = self.letters(letters) + self.places.weight
        mask = nn.Transformer.generate_square_subsequent_mask(2 * LENGTH)
        scores: Tensor = self.scores(self.layers(values, mask=mask, is_causal=True))
        return scores[:, LENGTH:]  # from the separator on


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch", type=int, default=64, help="sequences per step, over all ranks")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--rate", type=float, default=6e-3, help="learning rate")
    parser.add_argument("--dtype", choices=["bfloat16", "float16"], default="bfloat16", help="type of autocast")
    parser.add_argument("--compression", choices=COMPRESSIONS, default="none", help="of gradients on their way")
    options = parser.parse_args()

    hvd.init()  # (hvd)
    torch.manual_seed(1)
    model = Transformer(options.width)
    optimizer = hvd.DistributedOptimizer(  # (hvd)
        torch.optim.AdamW(model.parameters(), lr=options.rate),
        named_parameters=model.named_parameters(),
        compression=COMPRESSIONS[options.compression],
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, options.rate, options.steps)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)  # (hvd) start from the same weights everywhere

    dtype = getattr(torch, options.dtype)
    scaler = torch.amp.GradScaler("cpu", enabled=dtype == torch.float16)  # (amp)
    random = torch.Generator().manual_seed(hvd.rank())  # (hvd) other data on every rank
    begin = time.perf_counter()
    for step in range(1, options.steps + 1):
        letters, answer = make_batch(options.batch // hvd.size(), random)
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=dtype):  # (amp)
            scores = model(letters)
            loss = nn.functional.cross_entropy(scores.flatten(0, 1).float(), answer.flatten())
        scaler.scale(loss).backward()  # (amp)
        optimizer.synchronize()  # (hvd) all ranks have the same gradients now, to unscale and to clip
        scaler.unscale_(optimizer)  # (amp)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        with optimizer.skip_synchronize():  # (hvd)
            scaler.step(optimizer)  # (amp)
        scaler.update()  # (amp)
        schedule.step()
        if step % 25 == 0:
            average = hvd.allreduce(loss.detach(), name="loss")  # (hvd)
            if hvd.rank() == 0:
                speed = step / (time.perf_counter() - begin)
                print(f"step {step}  loss {average:.4f}  {speed:.1f} steps/s", flush=True)

    letters, answer = make_batch(200, torch.Generator().manual_seed(1000))
    with torch.no_grad():
        right = (model(letters).argmax(dim=2) == answer).float().mean()
    if hvd.rank() == 0:
        print(f"{right:.3f} of the letters are right, with {hvd.size()} ranks and compression {options.compression}")
    hvd.shutdown()  # (hvd)


if __name__ == "__main__":
    main()

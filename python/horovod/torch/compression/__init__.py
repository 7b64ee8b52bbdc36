"""Compression of tensors during a reduction: `Compression` has the values for `compression=`.

There are two kinds. A *casting* compressor (casts.py; and any class with the static methods `compress` and
`decompress`) changes the tensor before an ordinary reduction and changes the result back. A *reducing* compressor
(reducing.py) runs the whole exchange itself, in several collectives, and remembers per tensor what it left out.

Read casts.py, then reducing.py and exchanges.py (how an exchange of several steps stays asynchronous), then int8.py,
top_k.py and power_sgd.py.
"""

from horovod.torch.compression.casts import BF16Compressor, Compressor, FP16Compressor, NoneCompressor
from horovod.torch.compression.int8 import Int8Compressor
from horovod.torch.compression.power_sgd import PowerSGDCompressor
from horovod.torch.compression.reducing import ReducingCompressor, is_reducing
from horovod.torch.compression.top_k import TopKCompressor


class Compression:
    """The values for `compression=`.

    `int8` remembers what it left out under the tensor's name; where two models with the same names take turns, give
    each its own: `Compression.int8()`.
    """

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
    int8 = Int8Compressor()
    topk = TopKCompressor
    powersgd = PowerSGDCompressor


__all__ = [
    "BF16Compressor",
    "Compression",
    "Compressor",
    "FP16Compressor",
    "Int8Compressor",
    "NoneCompressor",
    "PowerSGDCompressor",
    "ReducingCompressor",
    "TopKCompressor",
    "is_reducing",
]

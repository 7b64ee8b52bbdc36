"""How many images per second do the ranks of a job train together? Random images, so that only computing and
communication count.

    horovodrun -np 2 python examples/tensorflow2_synthetic_benchmark.py --model MobileNetV2 --batch-size 8

Prints the rate of one process and of all together, with 1.96 standard deviations of the iterations.
"""

import argparse
import statistics
import time
from typing import Any

import tensorflow as tf

import horovod.tensorflow as hvd


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fp16-allreduce", action="store_true", help="send gradients as float16")
    parser.add_argument("--model", default="ResNet50", help="of tf.keras.applications (default: %(default)s)")
    parser.add_argument("--batch-size", type=int, default=32, help="images per step and rank (default: %(default)s)")
    parser.add_argument("--image-size", type=int, default=224, help="pixels of each side (default: %(default)s)")
    parser.add_argument("--num-warmup-batches", type=int, default=10, help="default: %(default)s")
    parser.add_argument("--num-batches-per-iter", type=int, default=10, help="default: %(default)s")
    parser.add_argument("--num-iters", type=int, default=10, help="default: %(default)s")
    parser.add_argument("--eager", action="store_true", help="run operations one by one")
    parser.add_argument("--no-cuda", action="store_true", help="do not use GPUs")
    return parser.parse_args()


def main() -> None:
    options = parse_arguments()
    hvd.init()
    gpus = tf.config.list_physical_devices("GPU")
    cuda = bool(gpus) and not options.no_cuda
    tf.config.set_visible_devices([gpus[hvd.local_rank()]] if cuda else [], "GPU")

    shape = (options.image_size, options.image_size, 3)
    model = getattr(tf.keras.applications, options.model)(weights=None, input_shape=shape)
    optimizer = tf.keras.optimizers.SGD(0.01 * hvd.size())
    compression = hvd.Compression.fp16 if options.fp16_allreduce else hvd.Compression.none
    compute_loss = tf.keras.losses.SparseCategoricalCrossentropy()
    images = tf.random.uniform([options.batch_size, *shape])
    labels = tf.random.uniform([options.batch_size, 1], maxval=999, dtype=tf.int64)

    def step() -> None:
        with tf.GradientTape() as tape:
            loss = compute_loss(labels, model(images, training=True))
        tape = hvd.DistributedGradientTape(tape, compression=compression)
        grads = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(grads, model.trainable_variables, strict=True))

    run: Any = step if options.eager else tf.function(step)

    def train(steps: int) -> float:
        """Seconds for this many steps."""
        began = time.perf_counter()
        for _ in range(steps):
            run()
        model.trainable_variables[0].numpy()  # a GPU may still be at work
        return time.perf_counter() - began

    def say(text: str) -> None:
        if hvd.rank() == 0:
            print(text, flush=True)

    kind = "GPU" if cuda else "CPU"
    say(f"Model: {options.model}")
    say(f"Batch size: {options.batch_size}")
    say(f"Number of {kind}s: {hvd.size()}")
    say("Running warmup...")
    train(1)
    hvd.broadcast_variables(model.variables, root_rank=0)
    variables = optimizer.variables
    hvd.broadcast_variables(variables() if callable(variables) else variables, root_rank=0)
    train(max(options.num_warmup_batches - 1, 0))
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

"""Training from one Python process, as in a notebook: horovod.run calls a function on several ranks.

    python examples/run_function.py --ranks 2

Every rank fits a line to its own points; the results are averaged, so all ranks return the same line.
"""

import argparse

import horovod


def train(steps: int, rate: float) -> dict[str, float]:
    """The function of each rank. It imports modules itself, because it runs in a separate process."""
    import numpy as np

    import horovod.numpy as hvd

    hvd.init()
    random = np.random.default_rng(hvd.rank())
    x = random.uniform(-1, 1, 1000)
    y = 3 * x + 2 + random.normal(0, 0.1, 1000)
    line = np.zeros(2)  # slope and offset
    for _ in range(steps):
        error = line[0] * x + line[1] - y
        gradient = np.array([(error * x).mean(), error.mean()])
        line -= rate * hvd.allreduce(gradient, name="gradient", op=hvd.Average)
    return {"rank": hvd.rank(), "slope": float(line[0]), "offset": float(line[1])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--hosts", help="such as node1:2,node2:2 (default: this machine)")
    options = parser.parse_args()

    results = horovod.run(train, (200,), {"rate": 0.5}, num_proc=options.ranks, hosts=options.hosts)
    for result in results:
        print(f"rank {result['rank']}: y = {result['slope']:.2f} x + {result['offset']:.2f}")
    try:
        horovod.run(train, ("many",), {"rate": 0.5}, num_proc=options.ranks)
    except RuntimeError as error:
        print(f"and this is how a mistake looks:\n{error}")


if __name__ == "__main__":
    main()

"""The program of a compute job, every rank of which preprocesses data for a training job:

    horovodrun -np 4 python -m horovod.tensorflow.data.compute_worker /shared/compute.json

The training job reads the file that rank 0 writes (`TfDataServiceConfig.read`), and ends this job with
`config.compute_client().shutdown()`.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Sequence

from horovod._generic.objects import broadcast_object
from horovod.common.basics import HorovodBasics
from horovod.runner.common.service.compute_service import ComputeService
from horovod.runner.common.util.secret import make_secret_key
from horovod.tensorflow.data.compute_service import SIDES, TfDataServiceConfig, compute_worker_fn


def main(dispatchers: int, dispatcher_side: str, configfile: str, timeout: int) -> None:
    """Run this rank until the training job ends the compute job. ValueError unless dispatchers divide the ranks."""
    basics = HorovodBasics()
    basics.init()
    rank, size = basics.rank(), basics.size()
    if dispatchers <= 0 or size % dispatchers:
        raise ValueError(
            f"the number of processes ({size}) must be a multiple of the number of dispatchers ({dispatchers})"
        )
    with contextlib.ExitStack() as stack:
        config = None
        if rank == 0:
            key = make_secret_key()
            service = ComputeService(dispatchers, size // dispatchers, key)
            stack.callback(service.close)
            config = TfDataServiceConfig(
                dispatchers, size // dispatchers, dispatcher_side, service.addresses(), key, timeout
            )
            config.write(configfile)
            stack.callback(_remove, configfile)
        compute_worker_fn(broadcast_object(config, 0, "compute.config"))


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """The parsed command line."""
    parser = argparse.ArgumentParser(
        prog="python -m horovod.tensorflow.data.compute_worker",
        description="Preprocess data for a training job; start it with horovodrun.",
    )
    parser.add_argument("configfile", help="the file that the training job reads, written by rank 0")
    parser.add_argument("--dispatchers", type=int, default=1, help="how many there are (default: %(default)s)")
    parser.add_argument(
        "--dispatcher-side", choices=SIDES, default="compute", help="the job that runs them (default: %(default)s)"
    )
    parser.add_argument(
        "--timeout", type=int, default=60, help="seconds to wait for dispatchers and workers (default: %(default)s)"
    )
    return parser.parse_args(arguments)


def _remove(configfile: str) -> None:
    """It is no longer valid."""
    with contextlib.suppress(OSError):
        os.unlink(configfile)


if __name__ == "__main__":
    options = parse_arguments(sys.argv[1:])
    main(options.dispatchers, options.dispatcher_side, options.configfile, options.timeout)

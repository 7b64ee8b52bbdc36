"""How a training job uses the data service of a compute job, and the part of each rank of the compute job.

*Dispatchers* know the datasets and divide the work, *workers* compute. A `ComputeService` on rank 0 of the
compute job keeps their addresses. Its own addresses and key are in a `TfDataServiceConfig`, which is passed as a file.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import tensorflow as tf

from horovod.common.basics import HorovodBasics
from horovod.runner.common.service.compute_service import ComputeClient

SIDES = ("compute", "training")
_LOOK_SECONDS = 0.1  # interval of checks for the file, which may be on another machine's file system


@dataclass(frozen=True)
class TfDataServiceConfig:
    """Where a data service is, and how it is made up.

    `dispatcher_side`: the job that runs the dispatchers, "compute" or "training". `timeout`: seconds to wait for
    dispatchers and workers.
    """

    dispatchers: int
    workers_per_dispatcher: int
    dispatcher_side: str
    addresses: dict[str, list[tuple[str, int]]]
    key: bytes
    timeout: int = 60

    def compute_client(self, verbose: int = 1) -> ComputeClient:
        """A client of the compute service."""
        return ComputeClient(self.addresses, self.key, verbose)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, the key in hexadecimal."""
        return asdict(self) | {"key": self.key.hex()}

    @staticmethod
    def from_dict(config: dict[str, Any]) -> TfDataServiceConfig:
        """The inverse of `to_dict`."""
        addresses = {
            name: [(str(host), int(port)) for host, port in places] for name, places in config["addresses"].items()
        }
        return TfDataServiceConfig(**{**config, "addresses": addresses, "key": bytes.fromhex(config["key"])})

    def write(self, filename: str) -> None:
        """Write it to a file that only this user can read: it holds the key. A reader sees all of it or nothing."""
        folder = os.path.dirname(os.path.abspath(filename))
        descriptor, temporary = tempfile.mkstemp(prefix=os.path.basename(filename), dir=folder)  # mode 0600
        try:
            with os.fdopen(descriptor, "w") as file:
                json.dump(self.to_dict(), file)
            os.rename(temporary, filename)
        except BaseException:
            os.unlink(temporary)
            raise

    @staticmethod
    def read(filename: str, wait_for_file_creation: bool = False) -> TfDataServiceConfig:
        """Read it from a file, as soon as there is one if `wait_for_file_creation`."""
        never = threading.Event()
        while wait_for_file_creation and not os.path.exists(filename):
            never.wait(_LOOK_SECONDS)
        with open(filename) as file:
            return TfDataServiceConfig.from_dict(json.load(file))


@contextlib.contextmanager
def tf_data_service(compute_config: TfDataServiceConfig, rank: int) -> Iterator[str]:
    """The address of this training rank's dispatcher, complete with its workers.

    With dispatchers on the training side, the first ranks run them while they are in the context: leave it on all
    ranks together, after the last element was read.
    """
    client = compute_config.compute_client()
    with contextlib.ExitStack() as stack:
        if compute_config.dispatcher_side == "training" and rank < compute_config.dispatchers:
            client.register_dispatcher(rank, stack.enter_context(_dispatcher(client.local_address())))
        dispatcher = rank % compute_config.dispatchers
        address = client.wait_for_dispatcher_registration(dispatcher, compute_config.timeout)
        client.wait_for_dispatcher_worker_registration(dispatcher, compute_config.timeout)
        yield address


def send_to_data_service(
    dataset: tf.data.Dataset,
    compute_config: TfDataServiceConfig,
    rank: int,
    size: int | None = None,
    processing_mode: str = "distributed_epoch",
    reuse_dataset: bool = False,
    round_robin: bool = False,
) -> tf.data.Dataset:
    """Return a dataset whose elements the data service computes; also `dataset.send_to_data_service(...)`.

    `reuse_dataset`: all ranks draw from one pass over the data, each element goes to one of them; otherwise every rank
    sees all elements. `round_robin`: ranks take turns in a fixed order, which needs `size`, `reuse_dataset` and a
    dataset without end.
    """
    if compute_config.dispatcher_side == "training":
        raise RuntimeError(
            "with dispatchers on the training side the dispatcher has to outlive the dataset: use "
            "`with tf_data_service(compute_config, rank) as address:` and tf.data.experimental.service.distribute"
        )
    with tf_data_service(compute_config, rank) as address:
        return dataset.apply(
            tf.data.experimental.service.distribute(
                processing_mode=processing_mode,
                service=address,
                job_name="job" if reuse_dataset else None,
                consumer_index=rank if round_robin else None,
                num_consumers=size if round_robin else None,
            )
        )


tf.data.Dataset.send_to_data_service = send_to_data_service


def compute_worker_fn(compute_config: TfDataServiceConfig) -> None:
    """Be a rank of the compute job: a worker, and on the first rank of each dispatcher the dispatcher too.

    Returns when the training job has shut the compute service down.
    """
    basics = HorovodBasics()
    basics.init()
    rank = basics.rank()
    client = compute_config.compute_client()
    dispatcher, place = divmod(rank, compute_config.workers_per_dispatcher)
    own = client.local_address()
    with contextlib.ExitStack() as stack:
        if compute_config.dispatcher_side == "compute" and place == 0:
            client.register_dispatcher(dispatcher, stack.enter_context(_dispatcher(own)))
        address = client.wait_for_dispatcher_registration(dispatcher, compute_config.timeout)
        stack.enter_context(_worker(own, address))
        client.register_worker_for_dispatcher(dispatcher, rank)
        client.wait_for_shutdown()


@contextlib.contextmanager
def _dispatcher(host: str) -> Iterator[str]:
    """A dispatcher, and its address as others reach it."""
    server = tf.data.experimental.service.DispatchServer()
    try:
        protocol, _, place = server.target.partition("://")
        yield f"{protocol}://{host}:{place.rpartition(':')[2]}"
    finally:
        server._stop()


@contextlib.contextmanager
def _worker(host: str, dispatcher: str) -> Iterator[None]:
    config = tf.data.experimental.service.WorkerConfig(
        dispatcher_address=dispatcher.partition("://")[2], worker_address=f"{host}:%port%"
    )
    server = tf.data.experimental.service.WorkerServer(config)
    try:
        yield
    finally:
        server._stop()

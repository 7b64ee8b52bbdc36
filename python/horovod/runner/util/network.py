"""The addresses of this machine, under the name by which older scripts import them."""

from horovod.runner.common.util.network import (
    filter_local_addresses,
    get_driver_ip,
    get_local_host_addresses,
    get_local_intfs,
    is_local,
    resolve_host_address,
)

__all__ = [
    "filter_local_addresses",
    "get_driver_ip",
    "get_local_host_addresses",
    "get_local_intfs",
    "is_local",
    "resolve_host_address",
]

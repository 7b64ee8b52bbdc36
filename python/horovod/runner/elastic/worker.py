"""What a worker of an elastic job is told about its hosts."""

from horovod.common.elastic import HostUpdateResult

__all__ = ["HostUpdateResult"]

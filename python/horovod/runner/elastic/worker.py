"""Notices about hosts to a worker of an elastic job."""

from horovod.common.elastic import HostUpdateResult

__all__ = ["HostUpdateResult"]

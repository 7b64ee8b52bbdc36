"""How an elastic job is to be started, as one value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from horovod.runner.common.util.settings import BaseSettings
from horovod.runner.elastic.discovery import HostDiscovery, HostDiscoveryScript


@dataclass(kw_only=True)
class ElasticSettings(BaseSettings):
    """A job whose hosts may change. horovodrun discovers hosts itself, so the discovery has to be a script for it."""

    discovery: HostDiscovery
    min_num_proc: int | None = None
    max_num_proc: int | None = None
    elastic_timeout: int | None = None
    reset_limit: int | None = None
    cooldown_range: tuple[int, int] | None = None
    elastic: bool = True

    def _more(self) -> dict[str, Any]:
        if not isinstance(self.discovery, HostDiscoveryScript):
            raise ValueError(f"horovodrun needs a HostDiscoveryScript, not a {type(self.discovery).__name__}")
        return {
            "host_discovery_script": self.discovery.script,
            "slots": self.discovery.default_slots,
            "min_num_proc": self.min_num_proc,
            "max_num_proc": self.max_num_proc,
            "elastic_timeout": self.elastic_timeout,
            "reset_limit": self.reset_limit,
            "cooldown_range": self.cooldown_range,
        }

"""Horovod for Lightning 2.x, under either of its names, `lightning` and `pytorch_lightning`:

    from horovod.torch.lightning import HorovodStrategy
    trainer = Trainer(strategy=HorovodStrategy())       # or, after that import, strategy="horovod"

started as `horovodrun -np 4 python train.py`. Every process is one rank and has one device, so leave `devices` and
`num_nodes` alone. `strategy.py` describes the strategy.

The two names of Lightning are two copies of its classes. `HorovodStrategy` is for the one that is imported already, or
else installed; with both, `strategy_class("pytorch_lightning")` selects one.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from functools import cache
from typing import TYPE_CHECKING, Any

from horovod.torch.lightning.environment import EnvironmentMethods
from horovod.torch.lightning.strategy import StrategyMethods

# Where Trainer's classes are, and where those of Fabric.
_PACKAGES = {"lightning.pytorch": "lightning.fabric", "pytorch_lightning": "lightning_fabric"}


@cache
def strategy_class(package: str) -> type[StrategyMethods]:
    """The strategy for `lightning.pytorch` or `pytorch_lightning`, which is then also known there as "horovod"."""
    if package not in _PACKAGES:
        raise ValueError(f"package must be one of {list(_PACKAGES)}, not {package!r}")
    strategies = importlib.import_module(f"{package}.strategies")
    environments = importlib.import_module(f"{_PACKAGES[package]}.plugins.environments")
    environment = type("HorovodEnvironment", (EnvironmentMethods, environments.ClusterEnvironment), {})
    cls: type[StrategyMethods] = type(
        "HorovodStrategy",
        (StrategyMethods, strategies.ParallelStrategy),
        {"__doc__": StrategyMethods.__doc__, "__module__": __name__, "_environment_class": environment},
    )
    strategies.StrategyRegistry.register("horovod", cls, description="one process per device, started by horovodrun")
    return cls


def _package() -> str:
    for name in _PACKAGES:
        if name in sys.modules:
            return name
    for name in _PACKAGES:
        if importlib.util.find_spec(name.split(".")[0]) is not None:
            return name
    raise ImportError("horovod.torch.lightning needs Lightning: pip install lightning, or pytorch-lightning")


if TYPE_CHECKING:
    HorovodStrategy = StrategyMethods
else:

    def __getattr__(name: str) -> Any:
        if name == "HorovodStrategy":
            return strategy_class(_package())
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


for _name in _PACKAGES:  # register the name "horovod" with every package that is installed
    if _name in sys.modules:
        strategy_class(_name)

__all__ = ["HorovodStrategy", "strategy_class"]

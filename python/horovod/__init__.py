"""Horovod: collective communication for training. Import the package of your framework, such as `horovod.numpy`."""

__version__ = "1.0.0"

from horovod.runner import run

__all__ = ["run", "__version__"]

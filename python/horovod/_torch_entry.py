"""What `import torch` calls, through the entry point group `torch.backends`: makes the backend "hvd" known.

This module imports nothing that imports torch, because torch is only half imported when it is loaded.
"""

from __future__ import annotations

from typing import Any


def register() -> None:
    """Tell torch.distributed how groups of the backend "hvd" are made. Their code is imported with the first one."""
    try:
        import torch.distributed as dist

        if not dist.is_available() or "HVD" in dist.Backend._plugins:
            return
        dist.Backend.register_backend("hvd", _create, extended_api=True, devices=["cpu"])
        from horovod import _torch_rendezvous

        _torch_rendezvous.install()
    except Exception as error:  # an optional part must not keep anybody from importing torch
        import warnings

        warnings.warn(f"horovod cannot register its backend with torch.distributed: {error}", stacklevel=2)


def _create(options: Any, backend_options: Any = None) -> Any:
    from horovod.torch.distributed.group import create

    return create(options, backend_options)

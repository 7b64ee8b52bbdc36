"""A name for this machine that is equal for two processes that share memory."""

from __future__ import annotations

import hashlib
import os
import socket


def host_hash(salt: str | None = None) -> str:
    """The host's name with a digest of it, its namespaces and `salt`; containers of one machine differ."""
    text = socket.gethostname()
    for namespace in ("mnt", "uts"):
        try:
            text += os.readlink(f"/proc/self/ns/{namespace}")
        except OSError:
            continue  # not Linux, or not mounted: the name must suffice
    if salt is not None:
        text += salt
    return f"{socket.gethostname()}-{hashlib.sha256(text.encode()).hexdigest()[:32]}"

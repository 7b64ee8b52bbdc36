"""The key of a job. A process that has it is part of the job."""

from __future__ import annotations

import hmac
import secrets

HOROVOD_SECRET_KEY = "_HOROVOD_SECRET_KEY"  # the worker's variable, in hexadecimal
DIGEST_LENGTH_BYTES = 32


def make_secret_key() -> bytes:
    """A new key."""
    return secrets.token_bytes(DIGEST_LENGTH_BYTES)


def compute_digest(key: bytes, message: bytes) -> bytes:
    """The proof that the sender of a message has the key."""
    return hmac.digest(key, message, "sha256")


def check_digest(key: bytes, message: bytes, digest: bytes) -> bool:
    """Whether `digest` is that of the message; constant time."""
    return hmac.compare_digest(compute_digest(key, message), digest)

"""Objects as text. Decoding can run arbitrary code: never decode untrusted text."""

from __future__ import annotations

import base64
import pickle
from typing import Any, Literal, overload

import cloudpickle


@overload
def dumps_base64(obj: Any, to_ascii: Literal[True] = True) -> str: ...
@overload
def dumps_base64(obj: Any, to_ascii: Literal[False]) -> bytes: ...
def dumps_base64(obj: Any, to_ascii: bool = True) -> str | bytes:
    """Pickle an object into base64."""
    encoded = base64.b64encode(cloudpickle.dumps(obj))
    return encoded.decode("ascii") if to_ascii else encoded


def loads_base64(encoded: str | bytes) -> Any:
    """The object that was passed to `dumps_base64`."""
    return pickle.loads(base64.b64decode(encoded))

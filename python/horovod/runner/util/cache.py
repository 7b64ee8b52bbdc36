"""Remembers results in a file for some time, such as which hosts could be reached."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_VERSION = 1


class Cache:
    """Values of JSON by name, in `cache.json` of a folder; forgotten when older than the limit, or when made for other
    parameters. Thread rule: any thread. Of two processes that write at once, one wins."""

    def __init__(self, cache_folder: str, cache_staleness_threshold_in_minutes: float, parameters_hash: str) -> None:
        self._path = Path(cache_folder) / "cache.json"
        self._limit = cache_staleness_threshold_in_minutes * 60
        self._parameters = parameters_hash
        self._lock = threading.Lock()
        self._values: dict[str, tuple[float, Any]] = self._load()  # guarded by _lock

    def get(self, key: Any) -> Any:
        """The value, or None if there is none or it is too old."""
        with self._lock:
            when, value = self._values.get(repr(key), (0.0, None))
        return value if 0 <= time.time() - when <= self._limit else None

    def put(self, key: Any, val: Any) -> None:
        """Remember a value."""
        with self._lock:
            self._values[repr(key)] = (time.time(), val)
            self._save()

    def _load(self) -> dict[str, tuple[float, Any]]:
        try:
            content = json.loads(self._path.read_text())
            if content["version"] != _VERSION or content["parameters"] != self._parameters:
                return {}
            return {str(key): (float(when), value) for key, (when, value) in content["values"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}  # no file, or not one of ours

    def _save(self) -> None:
        text = json.dumps({"version": _VERSION, "parameters": self._parameters, "values": self._values})
        self._path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=self._path.parent)
        try:
            with os.fdopen(handle, "w") as file:
                file.write(text)
            os.replace(name, self._path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise


def use_cache() -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorate a function: called with `fn_cache=Cache(...)`, it answers from there what it has answered before."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(*args: Any, fn_cache: Cache | None = None, **kwargs: Any) -> Any:
            if fn_cache is None:
                return function(*args, **kwargs)
            key = (function.__qualname__, args, sorted(kwargs.items()))
            found = fn_cache.get(key)
            if found is None:
                found = function(*args, **kwargs)
                fn_cache.put(key, found)
            return found

        return wrapper

    return decorate

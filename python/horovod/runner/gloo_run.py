"""Jobs that are started by horovodrun itself: described by settings, not by a command line."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from horovod.runner import program
from horovod.runner.common.util.settings import BaseSettings
from horovod.runner.launch import run_program


def gloo_run(
    settings: BaseSettings,
    nics: Collection[str] | None,
    env: Mapping[str, str],
    server_ip: str | None,
    command: str | Sequence[str],
) -> None:
    """Run a command on all slots of `settings`; RuntimeError if it fails on one of them.

    A string is run by the shell. `server_ip` is not needed: horovodrun publishes every address it has.
    """
    run_with_settings(settings, nics, env, command, "--gloo", program.NAME)


def run_with_settings(
    settings: BaseSettings,
    nics: Collection[str] | None,
    env: Mapping[str, str],
    command: str | Sequence[str],
    controller: str,
    launcher: str,
) -> None:
    """Run horovodrun with these settings; `launcher` is the program that starts the ranks with this controller."""
    words: list[Any] = ["sh", "-c", command] if isinstance(command, str) else list(command)
    interfaces = [f"--network-interfaces={','.join(sorted(nics))}"] if nics and not settings.nics else []
    run_program([controller, *settings.to_arguments(), *interfaces, *words], env, launcher)

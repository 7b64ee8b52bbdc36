"""Jobs that horovodrun starts with jsrun, inside an LSF job."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from horovod.runner.common.util.settings import BaseSettings
from horovod.runner.gloo_run import run_with_settings
from horovod.runner.util.lsf import is_jsrun_installed

__all__ = ["is_jsrun_installed", "js_run"]


def js_run(
    settings: BaseSettings, nics: Collection[str] | None, env: Mapping[str, str], command: str | Sequence[str]
) -> None:
    """Run a command on all slots of the LSF job with jsrun; RuntimeError with its exit code if it fails."""
    run_with_settings(settings, nics, env, command, "--jsrun", "jsrun")

"""Command lines that run a command on another host. horovodrun makes its own; these are for scripts."""

from __future__ import annotations

import os
import shlex

from horovod.runner.common.util.env import KUBEFLOW_MPI_EXEC

RSH_AGENT = "OMPI_MCA_plm_rsh_agent"
# A host that is new is accepted, one whose key has changed is not.
SSH_COMMAND_PREFIX = "ssh -o PasswordAuthentication=no -o StrictHostKeyChecking=accept-new"


def get_ssh_command(
    local_command: str,
    host: str,
    port: int | None = None,
    identity_file: str | None = None,
    timeout_s: float | None = None,
) -> str:
    """A shell command that runs `local_command`, itself a shell command, on the host with ssh."""
    words = [SSH_COMMAND_PREFIX]
    if timeout_s is not None:
        words.append(f"-o ConnectTimeout={max(1, round(timeout_s))}")
    if port is not None:
        words.append(f"-p {int(port)}")
    if identity_file is not None:
        words.append(f"-i {shlex.quote(identity_file)}")
    if host.startswith("-"):
        raise ValueError(f"a host's name cannot start with a dash: {host}")
    return " ".join([*words, shlex.quote(host), shlex.quote(local_command)])


def get_remote_command(
    local_command: str,
    host: str,
    port: int | None = None,
    identity_file: str | None = None,
    timeout_s: float | None = None,
) -> str:
    """The same, with kubexec instead of ssh if OMPI_MCA_plm_rsh_agent names it."""
    if os.environ.get(RSH_AGENT) == KUBEFLOW_MPI_EXEC:
        return f"{KUBEFLOW_MPI_EXEC} {shlex.quote(host)} {shlex.quote(local_command)}"
    return get_ssh_command(local_command, host, port, identity_file, timeout_s)

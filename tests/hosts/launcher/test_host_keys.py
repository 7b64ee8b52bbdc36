"""Whose host keys are taken, and what of the user's own settings of ssh counts."""

from __future__ import annotations

import pathlib
import subprocess
from typing import Any

from bed import Bed
from jobs import finish


def ssh_config(directory: pathlib.Path, *lines: str) -> dict[str, str]:
    """A client whose user has configured nothing but where keys are."""
    config = directory / "config"
    own = [
        "IdentityFile /etc/ssh/id_testbed",
        "GlobalKnownHostsFile /dev/null",
        f"UserKnownHostsFile {directory}/known",
    ]
    config.write_text("\n".join([*own, "LogLevel ERROR", *lines]) + "\n")
    return {"HOROVOD_SSH_COMMAND": f"ssh -F {config}"}


def test_a_new_host_key_is_taken_and_a_changed_one_refused(launch: Any, bed: Bed, tmp_path: pathlib.Path) -> None:
    env = ssh_config(tmp_path)
    finish(launch("-np", "1", "-H", "hostb:1", "true", env=env), 0)
    known = tmp_path / "known"
    assert known.read_text().startswith("hostb ")
    finish(launch("-np", "1", "-H", "hostb:1", "--ssh-strict", "true", env=env), 0)
    name, kind, _ = known.read_text().split(maxsplit=2)
    other = (bed["hostc"].directory / "ssh/ssh_host_ed25519_key.pub").read_text().split()[1]
    known.write_text(f"{name} {kind} {other}\n")
    _, err = finish(launch("-np", "1", "-H", "hostb:1", "true", env=env), 1)
    assert "    hostb  its host key has changed" in err
    assert "ssh-keygen -R hostb" in err


def test_strict_means_known_hosts_only(launch: Any, tmp_path: pathlib.Path) -> None:
    env = ssh_config(tmp_path)
    _, err = finish(launch("-np", "1", "-H", "hostb:1", "--ssh-strict", "true", env=env), 1)
    assert "    hostb  its host key is not known, and --ssh-strict requires a known one" in err
    assert not (tmp_path / "known").exists()


def test_the_users_own_setting_of_host_keys_wins(launch: Any, tmp_path: pathlib.Path) -> None:
    env = ssh_config(tmp_path, "StrictHostKeyChecking yes")
    _, err = finish(launch("-np", "1", "-H", "hostb:1", "true", env=env), 1)
    assert "    hostb  its host key is not known" in err


def test_port_and_identity(launch: Any, bed: Bed, tmp_path: pathlib.Path) -> None:
    server = bed["hostb"].popen(
        ["/usr/sbin/sshd", "-D", "-e", "-p", "2222", "-o", "PidFile=none"], stderr=subprocess.PIPE, text=True
    )
    try:
        assert server.stderr
        while "Server listening on :: port 2222" not in (line := server.stderr.readline()):
            assert line
        identity = tmp_path / "identity"
        identity.write_bytes((bed["hosta"].directory / "ssh/id_testbed").read_bytes())
        identity.chmod(0o600)
        config = tmp_path / "empty"
        config.write_text(f"UserKnownHostsFile {tmp_path}/known\nLogLevel ERROR\n")
        env = {"HOROVOD_SSH_COMMAND": f"ssh -F {config}"}
        command = ["-np", "1", "-H", "hostb:1", "-p", "2222"]
        finish(launch(*command, "-i", str(identity), "true", env=env), 0)
        _, err = finish(launch(*command, "true", env=env), 1)
        assert "    hostb  ssh requires an interactive login (" in err
    finally:
        server.kill()
        server.wait()

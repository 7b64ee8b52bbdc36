"""Keys and settings with which every host of a bed reaches every other by plain `ssh NAME`, host keys checked."""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

SSHD = "/usr/sbin/sshd"

CLIENT = """\
Host *
  IdentityFile /etc/ssh/id_testbed
  UserKnownHostsFile /dev/null
  GlobalKnownHostsFile /etc/ssh/ssh_known_hosts
  StrictHostKeyChecking yes
  UpdateHostKeys no
  LogLevel ERROR
"""

SERVER = """\
ListenAddress 0.0.0.0
ListenAddress ::
HostKey /etc/ssh/ssh_host_ed25519_key
AuthorizedKeysFile /etc/ssh/authorized_keys
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
StrictModes no
UsePAM no
UseDNS no
MaxStartups 200:30:400
MaxSessions 200
Subsystem sftp internal-sftp
"""


def _make_key(path: Path, comment: str) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path)], check=True)


def write(directory: Path, hosts: Mapping[str, Sequence[str]]) -> None:
    """Makes directory/<host>/ssh, the /etc/ssh of each host; `hosts` gives names and addresses."""
    if not Path(SSHD).exists():
        raise RuntimeError(f"{SSHD} is missing: tools/packages.sh testbed installs it")
    user_key = directory / "id_testbed"
    _make_key(user_key, "testbed")
    known = []
    for name, addresses in hosts.items():
        etc = directory / name / "ssh"
        etc.mkdir()
        host_key = etc / "ssh_host_ed25519_key"
        _make_key(host_key, f"root@{name}")
        kind, key, _ = host_key.with_suffix(".pub").read_text().split()
        known.append(f"{','.join([name, *addresses])} {kind} {key}\n")
    for name in hosts:
        etc = directory / name / "ssh"
        shutil.copy(user_key, etc)
        shutil.copy(user_key.with_suffix(".pub"), etc / "authorized_keys")
        (etc / "ssh_known_hosts").write_text("".join(known))
        (etc / "ssh_config").write_text(CLIENT)
        (etc / "sshd_config").write_text(SERVER)


def serve(popen: Callable[..., subprocess.Popen[str]]) -> subprocess.Popen[str]:
    """Starts sshd with a host's popen and returns when it listens."""
    server = popen([SSHD, "-D", "-e"], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert server.stderr
    said: list[str] = []
    while sum(line.startswith("Server listening") for line in said) < 2:  # IPv4 and IPv6
        said.append(server.stderr.readline())
        if not said[-1]:
            server.wait()
            raise RuntimeError(f"sshd did not start: {''.join(said).strip()}")
    # Its later output is not used, but it must not block.
    threading.Thread(target=server.stderr.read, name="sshd log", daemon=True).start()
    return server

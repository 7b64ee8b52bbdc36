"""A real Slurm cluster on the hosts of a bed: munge and slurmd on each, the controller on the first."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bed import Bed, Machine

DEADLINE = 60  # seconds for the nodes to come up

CONFIGURATION = """
ClusterName=bed
SlurmctldHost={first}
SlurmUser=root
AuthType=auth/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
KillWait=2
StateSaveLocation=/run/slurm/state
SlurmdSpoolDir=/run/slurm/spool
SlurmctldPidFile=/run/slurm/slurmctld.pid
SlurmdPidFile=/run/slurm/slurmd.pid
SlurmctldLogFile=/run/slurm/slurmctld.log
SlurmdLogFile=/run/slurm/slurmd.log
PartitionName=bed Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""

# $1 has the files that all nodes share. /run is the host's own; mounts end with it.
PREPARE = """
mkdir -p /run/slurm/etc /run/slurm/state /run/slurm/spool /run/munge
cp "$1/slurm.conf" /run/slurm/etc/
echo CgroupPlugin=cgroup/v1 >/run/slurm/etc/cgroup.conf      # not used, but probing for it would fail
echo PMIxCliTmpDirBase=/run/slurm >/run/slurm/etc/mpi.conf   # /tmp is shared by the hosts
mount --bind /run/slurm/etc /etc/slurm
install -m 400 "$1/munge.key" /run/munge/munge.key
munged --key-file=/run/munge/munge.key --log-file=/run/munge/munged.log --seed-file=/run/munge/seed \
  --pid-file=/run/munge/munged.pid 2>/dev/null
"""


def why_not() -> str | None:
    """None, or the reason why there can be no cluster here."""
    missing = [tool for tool in ("munged", "slurmctld", "slurmd", "srun") if not shutil.which(tool, path=_PATH)]
    return f"not installed: {' '.join(missing)} (tools/packages.sh testbed)" if missing else None


_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin"


class Cluster:
    """All hosts of the bed are its nodes; it ends with them."""

    def __init__(self, bed: Bed, directory: Path, cpus: int = 4) -> None:
        machines = list(bed)
        self._first = machines[0]
        nodes = "".join(f"NodeName={machine.name} CPUs={cpus} State=UNKNOWN\n" for machine in machines)
        (directory / "slurm.conf").write_text(CONFIGURATION.format(first=self._first.name).lstrip() + nodes)
        (directory / "munge.key").write_bytes(os.urandom(1024))
        for machine in machines:
            machine.run(["sh", "-ec", PREPARE, "prepare", directory], check=True, env={**os.environ, "PATH": _PATH})
        self._start(self._first, "slurmctld")
        for machine in machines:
            self._start(machine, "slurmd")
        self._wait_for(len(machines))

    def run(self, command: Sequence[str | Path], **options: Any) -> subprocess.CompletedProcess[str]:
        """On the first node."""
        return self._first.run(command, capture_output=True, text=True, timeout=120, **options)

    @staticmethod
    def _start(machine: Machine, daemon: str) -> None:
        machine.run([shutil.which(daemon, path=_PATH) or daemon], check=True, stdout=subprocess.DEVNULL)

    def _wait_for(self, nodes: int) -> None:
        until = time.monotonic() + DEADLINE
        while time.monotonic() < until:
            if self.run(["sinfo", "-h", "-t", "idle", "-o", "%D"]).stdout.strip() == str(nodes):
                return
            time.sleep(0.05)
        raise RuntimeError(f"not all nodes came up: {self.run(['sinfo']).stdout}")

"""A host of the test bed that plays a container: a root directory of its own, into which volumes can be mounted.

    container = Container(bed["hosta"], {"/horovod/generated": folder})
    container.run(["ls", "/horovod/generated"], check=True)

The programs are those of the machine; /etc, /home, /root, /run and /horovod are the container's own, so that nothing
outside changes. It ends with its host.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bed import Machine

ROOT = "/run/container"

# $1 is the new root, then pairs of a directory and where it is wanted. Entries of / and /root are lent one by one, so
# that there can be others beside them; /etc is small enough to be copied.
MAKE = """
root=$1
shift
lend() {  # from, to, names that are not lent
  find "$1" -mindepth 1 -maxdepth 1 | while read -r entry; do
    name=${entry##*/}
    case " $3 " in *" $name "*) continue ;; esac
    if [ -L "$entry" ]; then cp -a "$entry" "$2/"
    elif [ -d "$entry" ]; then mkdir "$2/$name"; mount --rbind "$entry" "$2/$name"
    elif [ -f "$entry" ]; then touch "$2/$name"; mount --bind "$entry" "$2/$name"
    fi
  done
}
mkdir "$root"
mount -t tmpfs -o mode=755 tmpfs "$root"
lend / "$root" "etc home horovod root run"
mkdir "$root/run" "$root/root"
lend /root "$root/root" .ssh
cp -a /etc "$root"
rm -rf "$root/etc/ssh"
mkdir "$root/etc/ssh"
echo 'horovod:x:10001:10001::/home/horovod:/bin/bash' >>"$root/etc/passwd"
mkdir -p "$root/home/horovod"
chown 10001:10001 "$root/home/horovod"
while [ $# -gt 0 ]; do
  mkdir -p "$root$2"
  if [ -n "$1" ]; then mount --bind "$1" "$root$2"; else mount -t tmpfs -o mode=777 tmpfs "$root$2"; fi
  shift 2
done
"""


class Container:
    def __init__(self, machine: Machine, volumes: Mapping[str, Path | None], *, hostname: str | None = None) -> None:
        """Volumes by where they are mounted; None is an empty directory of the container's own."""
        self.machine = machine
        pairs = [word for where, what in volumes.items() for word in (str(what or ""), where)]
        machine.run(["sh", "-euc", MAKE, "make", ROOT, *pairs], check=True)
        if hostname:
            machine.run(["hostname", hostname], check=True)

    def popen(self, command: Sequence[str | os.PathLike[str]], **options: Any) -> subprocess.Popen[Any]:
        return self.machine.popen(["chroot", ROOT, *command], **options)

    def run(self, command: Sequence[str | os.PathLike[str]], **options: Any) -> subprocess.CompletedProcess[Any]:
        return self.machine.run(["chroot", ROOT, *command], **{"timeout": 60, **options})

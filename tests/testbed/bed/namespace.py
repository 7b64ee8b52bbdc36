"""A set of namespaces, held by a process that does nothing else."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

# A process joins the group before it is anything else, so that nothing it starts can escape.
JOIN = 'echo $$ >"$0/cgroup.procs" && exec "$@"'
ENTER = 'echo $$ >"$0/cgroup.procs" && exec nsenter --wdns="$PWD" "$@"'


class Namespace:
    """Ends when it is closed or its owner ends, however that happens: the holder reads a pipe of the owner's."""

    def __init__(self, kinds: Sequence[str], group: Path, script: str = "", *arguments: str) -> None:
        """`script` is run inside, as root, before any other process starts there."""
        self.group = group
        group.mkdir(exist_ok=True)
        prepare = ["sh", "-ec", f"{script}\necho ready\nexec cat", "holder", *arguments]
        self._holder = subprocess.Popen(
            ["sh", "-c", JOIN, str(group), "unshare", *(f"--{kind}" for kind in kinds), *prepare],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # a Ctrl-C is for the tests
        )
        assert self._holder.stdout and self._holder.stderr
        if self._holder.stdout.readline() != "ready\n":
            _, errors = self._holder.communicate()
            raise RuntimeError(f"cannot make {group.name}: {errors.strip()}")
        self._enter = [f"--{kind}" for kind in kinds]

    @property
    def pid(self) -> int:
        return self._holder.pid

    def command(self, command: Sequence[str | os.PathLike[str]]) -> list[str]:
        """The same command inside: nsenter becomes it, so that pid, signals and exit code are its own."""
        enter = ["-t", str(self.pid), *self._enter, "--"]
        return ["sh", "-c", ENTER, str(self.group), *enter, *(os.fspath(word) for word in command)]

    def batch(self, tool: str, lines: Sequence[str]) -> None:
        """Runs lines of `ip`, `tc` or `nft` on the network inside; the file system is the machine's."""
        if not lines:
            return
        argument = "-f" if tool == "nft" else "-batch"
        command = ["nsenter", "-t", str(self.pid), "--net", "--", tool, argument, "-"]
        result = subprocess.run(command, input="\n".join(lines) + "\n", capture_output=True, text=True)
        if result.returncode != 0:
            raise RuntimeError(f"{tool} in {self.group.name}: {result.stderr.strip()}")

    def close(self) -> None:
        """Lets the holder go; processes that are still inside keep the namespaces."""
        self._holder.communicate()

#!/usr/bin/env python3
"""Stands in for ssh: runs the command here, as a host of the given name, after what FAKE_SSH asks for.

FAKE_SSH is a directory. `calls` gets a line for every call; `HOST.sh`, if there, is run instead of the login.
"""

import os
import pathlib
import sys

TAKES_VALUE = {"-o", "-p", "-i", "-F", "-l"}


def main() -> None:
    arguments = sys.argv[1:]
    while arguments and arguments[0].startswith("-"):
        del arguments[: 2 if arguments[0] in TAKES_VALUE else 1]
    host, *command = arguments
    folder = pathlib.Path(os.environ["FAKE_SSH"])
    with (folder / "calls").open("a") as calls:
        calls.write(" ".join(sys.argv[1:]).replace("\n", " ") + "\n")
    # A login starts from its own environment, with no trace of the launcher's.
    environment = {"PATH": os.environ["PATH"], "HOME": "/", "FAKE_HOST": host}
    login = folder / f"{host}.sh"
    text = " ".join(command)
    if login.exists():
        os.execve("/bin/sh", ["sh", str(login), text], environment)
    os.chdir("/")
    os.execve("/bin/sh", ["sh", "-c", text], environment)


main()

"""What the bed's tests do in hosts: run a command, ping, and hold sockets in a process that runs commands."""

from __future__ import annotations

import subprocess
import sys
import time
from types import TracebackType

from bed import Machine

# Statements are executed, expressions answered; an exception is answered with its name.
LOOP = """
import ast, socket, sys
def take(s, size):
    while size > 0: size -= len(s.recv(size))
def look(s):
    s.settimeout(0)
    try: return s.recv(1)
    finally: s.settimeout(30)
for line in sys.stdin:
    try:
        line = ast.literal_eval(line)
        try:
            code = compile(line, "peer", "eval")
        except SyntaxError:
            code = compile(line, "peer", "exec")
        print(repr(eval(code)), flush=True)
    except OSError as error:
        print(repr(type(error).__name__), flush=True)
"""


class Peer:
    """peer("expression") waits for its value; ask() and answer() are its halves."""

    def __init__(self, machine: Machine) -> None:
        command = [sys.executable, "-c", LOOP]
        self.process = machine.popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, line: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(f"{line!r}\n")
        self.process.stdin.flush()

    def answer(self) -> str:
        """The value, as repr() writes it."""
        assert self.process.stdout
        return str(self.process.stdout.readline().rstrip("\n"))

    def __call__(self, line: str) -> str:
        self.ask(line)
        return self.answer()

    def __enter__(self) -> Peer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.communicate()


def connect(server: Peer, client: Peer, address: str) -> None:
    """Leaves a TCP connection as `s` in both."""
    family = "socket.AF_INET6" if ":" in address else "socket.AF_INET"
    server(f"l = socket.create_server(('{address}', 0), family={family})")
    port = server("l.getsockname()[1]")
    client(f"s = socket.create_connection(('{address}', {port}), timeout=30)")
    server("s = l.accept()[0]")
    server("s.settimeout(30)")


def udp(peer: Peer, address: str) -> int:
    """Leaves a UDP socket as `u`, and returns its port."""
    peer("u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)")
    peer(f"u.bind(('{address}', 0))")
    peer("u.settimeout(30)")
    return int(peer("u.getsockname()[1]"))


def output(machine: Machine, *command: str) -> str:
    """Of a command that must succeed."""
    result = machine.run(command, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, f"{command}: {result.stderr}"
    return str(result.stdout).strip()


def ping(machine: Machine, address: str) -> None:
    """Until it is answered: while the kernel still gives up a neighbour that did not answer before, it tells us so."""
    deadline = time.monotonic() + 60
    command = ["ping", "-c", "1", "-W", "30", address]
    while (result := machine.run(command, capture_output=True, text=True, timeout=60)).returncode != 0:
        assert time.monotonic() < deadline, result.stdout + result.stderr

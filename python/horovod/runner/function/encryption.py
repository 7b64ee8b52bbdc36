"""TLS under the connections of horovod.run, when HOROVOD_TLS asks for it.

Both sides present the certificate that was made for the run and accept no other, as all processes of a job do
(src/net/tls.h): no authority, host name or clock is asked. The handshake of channel.py follows inside.
"""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from horovod.runner import program

_NO_CHECK_TIME = 0x200000  # X509_V_FLAG_NO_CHECK_TIME: the clocks of hosts may differ
_READ_BYTES = 256 << 10
_Made = TypeVar("_Made")


def make_identity() -> str:
    """A fresh certificate and its private key, PEM in hexadecimal. As secret as a key."""
    made = subprocess.run([program.find(), "--make-tls-identity"], capture_output=True, text=True)
    if made.returncode != 0:
        raise RuntimeError(f"horovodrun cannot make a TLS certificate: {made.stderr.strip()}")
    return made.stdout.strip()


class Encryption:
    """What connections of one run are encrypted with. Thread rule: any thread."""

    def __init__(self, identity: str) -> None:
        pem = bytes.fromhex(identity).decode()
        certificate = pem[: pem.index("-----BEGIN", 1)]
        self._certificate = ssl.PEM_cert_to_DER_cert(certificate)
        self._client = _context(ssl.PROTOCOL_TLS_CLIENT, pem, certificate)
        self._server = _context(ssl.PROTOCOL_TLS_SERVER, pem, certificate)
        self._server.num_tickets = 0

    def call(self, sock: socket.socket, deadline: float) -> EncryptedSocket:
        """Encrypt a connection that was made; OSError if the other side is not of this run."""
        return self._agree(EncryptedSocket(sock, self._client, is_server=False), deadline)

    def answer(self, sock: socket.socket, deadline: float) -> EncryptedSocket:
        """Encrypt a connection that was accepted; OSError if the other side is not of this run."""
        return self._agree(EncryptedSocket(sock, self._server, is_server=True), deadline)

    def _agree(self, encrypted: EncryptedSocket, deadline: float) -> EncryptedSocket:
        if encrypted.agree(deadline) != self._certificate:
            raise ssl.SSLCertVerificationError("the other side has the certificate of another run")
        return encrypted


class EncryptedSocket:
    """Behaves as a socket for what channel.py does with one.

    The SSLSocket of Python cannot be used by one thread that sends and another that waits to receive; here nobody waits
    while holding the state of TLS. Thread rule: one thread may send while another receives; close() from any.
    """

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, is_server: bool) -> None:
        self._socket = sock
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=is_server)
        self._lock = threading.Lock()  # guards the three
        self._sending = threading.Lock()  # keeps what is sent in order

    def agree(self, deadline: float) -> bytes | None:
        """The TLS handshake; the certificate of the other side."""

        def prepare() -> None:
            self._flush()
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError("it said nothing for too long")
            self._socket.settimeout(left)

        try:
            self._advance(self._tls.do_handshake, prepare)
        finally:
            self._flush()  # the last words, or the alert that tells the other side
        return self._tls.getpeercert(binary_form=True)

    def recv_into(self, view: memoryview) -> int:
        try:
            return self._advance(lambda: self._tls.read(view.nbytes, view))  # type: ignore[return-value]
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
            return 0

    def sendall(self, data: bytes | bytearray | memoryview) -> None:
        view = memoryview(data)
        with self._sending:
            while view.nbytes > 0:
                with self._lock:
                    written = self._tls.write(view)
                view = view[written:]
                self._flush()

    def settimeout(self, seconds: float | None) -> None:
        self._socket.settimeout(seconds)

    def shutdown(self, how: int) -> None:
        self._socket.shutdown(how)

    def close(self) -> None:
        self._socket.close()

    def _advance(self, step: Callable[[], _Made], before_wait: Callable[[], None] = lambda: None) -> _Made:
        """Repeat `step` with more and more of what the other side sends, until it is done."""
        while True:
            with self._lock:
                try:
                    return step()
                except ssl.SSLWantReadError:
                    pass
            before_wait()
            data = self._socket.recv(_READ_BYTES)
            with self._lock:
                if data:
                    self._incoming.write(data)
                else:
                    self._incoming.write_eof()

    def _flush(self) -> None:
        with self._lock:
            data = self._outgoing.read()
        if data:
            self._socket.sendall(data)


def _context(protocol: int, pem: str, certificate: str) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_flags = ssl.VerifyFlags(_NO_CHECK_TIME | ssl.VERIFY_X509_TRUSTED_FIRST)
    context.load_verify_locations(cadata=certificate)
    # Python reads a private key from files only: this one has no name, and is gone when it is closed.
    with os.fdopen(os.memfd_create("identity"), "w") as file:
        file.write(pem)
        file.flush()
        context.load_cert_chain(f"/proc/self/fd/{file.fileno()}")
    return context

"""A server over TCP, with TLS or without, that passes everything on to another server; in threads."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

CERTIFICATE = Path(__file__).parent / "tls" / "server.crt"
"""Signed by itself, for 127.0.0.1 and localhost, until the year 2126."""
_KEY = CERTIFICATE.with_suffix(".key")
_SSL_REQUEST_BYTES = 8
_PATIENCE = 60.0  # seconds for anything that should come at once


@contextmanager
def in_front_of(host: str, port: int, *, tls: bool) -> Iterator[int]:
    """The port at which it listens."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE, _KEY)
    sockets = ExitStack()
    threads: list[threading.Thread] = []

    def start(*target: object) -> None:
        threads.append(threading.Thread(target=target[0], args=target[1:], daemon=True))  # type: ignore[arg-type]
        threads[-1].start()

    def accept() -> None:
        with suppress(OSError):
            while True:
                start(serve, sockets.enter_context(listener.accept()[0]))

    def serve(client: socket.socket) -> None:
        with suppress(OSError):  # a client that does not trust us goes away
            client.settimeout(_PATIENCE)
            if tls:
                client.recv(_SSL_REQUEST_BYTES, socket.MSG_WAITALL)
                client.sendall(b"S")
                client = sockets.enter_context(context.wrap_socket(client, server_side=True))
            there = sockets.enter_context(_connected(host, port))
            start(_pass_on, there, client)
            _pass_on(client, there)

    listener = sockets.enter_context(socket.create_server(("0.0.0.0", 0)))
    start(accept)
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join(_PATIENCE)
        sockets.close()


def _connected(host: str, port: int) -> socket.socket:
    if not host.startswith("/"):
        return socket.create_connection((host, port), timeout=_PATIENCE)
    there = socket.socket(socket.AF_UNIX)
    there.settimeout(_PATIENCE)
    there.connect(f"{host}/.s.PGSQL.{port}")
    return there


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    for end in (source, target):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)

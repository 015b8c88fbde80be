"""A proxy that makes a server distant: it holds back what passes, for some milliseconds each way.

    python -m benchmarks.distance 127.0.0.1:5432 --milliseconds 1 --port 6432

Point any benchmark at the port. Bandwidth is not limited, and bytes that arrive together stay together.
Timers of an event loop would be too coarse for half a millisecond, so the proxy has threads. Ctrl-C ends it.
"""

from __future__ import annotations

import argparse
import socket
import threading
import time
from queue import SimpleQueue

CHUNK = 1 << 18  # bytes that one read may return


class Proxy:
    """Accepts connections on a port of this machine and forwards them, late."""

    def __init__(self, server: tuple[str, int], seconds: float, port: int = 0) -> None:
        self._server = server
        self._seconds = seconds
        self._socket = socket.create_server(("127.0.0.1", port))
        self.port: int = self._socket.getsockname()[1]

    def __enter__(self) -> Proxy:
        _start(self._accept)
        return self

    def __exit__(self, *error: object) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)  # wakes `accept`, which closing does not
        self._socket.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._socket.accept()
            except OSError:
                return  # closed
            server = socket.create_connection(self._server)
            for source, target in ((client, server), (server, client)):
                source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                due: SimpleQueue[tuple[float, bytes]] = SimpleQueue()
                _start(self._read, source, due)
                _start(self._write, target, due)

    def _read(self, source: socket.socket, due: SimpleQueue[tuple[float, bytes]]) -> None:
        data = b"-"
        while data:
            try:
                data = source.recv(CHUNK)
            except OSError:
                data = b""
            due.put((time.monotonic() + self._seconds, data))

    def _write(self, target: socket.socket, due: SimpleQueue[tuple[float, bytes]]) -> None:
        while True:
            at, data = due.get()
            time.sleep(max(0.0, at - time.monotonic()))
            try:
                if not data:
                    return target.shutdown(socket.SHUT_WR)
                target.sendall(data)
            except OSError:
                return None  # the other end has gone


def _start(function: object, *args: object) -> None:
    threading.Thread(target=function, args=args, daemon=True).start()  # type: ignore[arg-type]


def main() -> None:
    """Forward until Ctrl-C."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("server", help="the address of the server, host:port")
    parser.add_argument("--milliseconds", type=float, default=1.0, help="how long bytes take each way")
    parser.add_argument("--port", type=int, default=6432)
    options = parser.parse_args()
    host, _, port = options.server.rpartition(":")
    with Proxy((host, int(port)), options.milliseconds / 1000, options.port) as proxy:
        print(f"{options.server} is {options.milliseconds:g} ms away on 127.0.0.1:{proxy.port}", flush=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            return


if __name__ == "__main__":
    main()

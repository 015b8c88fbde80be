"""Ports for programs that cannot choose one themselves."""

from __future__ import annotations

import random
import socket
from contextlib import suppress
from pathlib import Path

FIRST = 15_000
GIVEN_OUT = Path("/proc/sys/net/ipv4/ip_local_port_range")


def unused_port() -> int:
    """A port for a program that starts later.

    It is below the range from which the system serves outgoing connections and requests for any port.
    A port of that range may be taken before the program has started.
    """
    candidates = range(FIRST, _first_given_out())
    for port in random.SystemRandom().sample(candidates, min(100, len(candidates))):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    with socket.create_server(("127.0.0.1", 0)) as server:  # this system gives out all of them
        found: int = server.getsockname()[1]
        return found


def _first_given_out() -> int:
    with suppress(OSError):
        return int(GIVEN_OUT.read_text().split()[0])
    return 32_768

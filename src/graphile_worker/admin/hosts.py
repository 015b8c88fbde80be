"""Which names the Host header may have: a page on another name that resolves to us must not reach us."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import ip_address

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
DEFAULT_PORTS = {"http": 80, "https": 443}
_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>[0-9]{1,5}))?")


def split_host(text: str) -> tuple[str, int | None] | None:
    """The name in lower case and the port of a Host header; None if it is not one."""
    found = _HOST.fullmatch(text)
    if found is None:
        return None
    port = found["port"]
    return found["name"].lower().rstrip("."), int(port) if port else None


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class HostRule:
    """Names with a port accept that port only; names without one accept every port. `*` accepts all."""

    names: frozenset[tuple[str, int | None]] | None

    @classmethod
    def of(cls, names: Iterable[str] | None) -> HostRule:
        """A rule of the names as people write them; None accepts every name."""
        if names is None:
            return cls(None)
        given = list(names)
        if "*" in given:
            return cls(None)
        found = [split_host(name) for name in given]
        return cls(frozenset(each for each in found if each is not None))

    @classmethod
    def of_loopback(cls, port: int, names: Iterable[str] = ()) -> HostRule:
        """For a server on loopback: its own names with its port, and the names given."""
        return cls.of([*(f"{name}:{port}" for name in LOOPBACK_NAMES), *names])

    def accepts(self, header: str | None, scheme: str = "http") -> bool:
        """Whether a request with this Host header is meant for us."""
        if self.names is None:
            return True
        found = split_host(header) if header else None
        if found is None:
            return False
        name, port = found
        port = port or DEFAULT_PORTS.get(scheme)
        return (name, None) in self.names or (name, port) in self.names

"""A server of a benchmark's own, and the CPU time of processes. Not a benchmark itself."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from graphile_worker.database.embedded import EmbeddedPostgres

HAS_PROC = Path("/proc/self/stat").exists()


@dataclass(frozen=True, slots=True)
class OwnServer:
    """A PostgreSQL server that only the benchmark uses."""

    url: str
    pid: int
    version: str


@contextmanager
def own_server(settings: Mapping[str, str] | None = None, *, port: int | None = None) -> Iterator[OwnServer]:
    """A new server in a temporary folder, until the end of the block; `port` as for `EmbeddedPostgres`."""
    with tempfile.TemporaryDirectory(prefix="graphile-worker-bench-") as folder:
        Path(folder).chmod(0o711)
        with EmbeddedPostgres(Path(folder) / "postgres", settings=settings, port=port) as server:
            (found,) = Path(folder).rglob("postmaster.pid")
            yield OwnServer(server.url(), int(found.read_text().split()[0]), server.version)


class CpuClock:
    """The CPU time of a process and of its children, from /proc; 0 where there is none."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def own_seconds(self) -> float:
        """Of the process alone."""
        return sum(_usage(self._pid)[1:3]) / os.sysconf("SC_CLK_TCK") if HAS_PROC else 0.0

    def seconds(self) -> float:
        """Of the process, its ended children, and its children that run."""
        if not HAS_PROC:
            return 0.0
        own, children = _usage(self._pid), 0
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                usage = _usage(int(folder.name))
                children += sum(usage[1:3]) if usage[0] == self._pid else 0
        return (sum(own[1:]) + children) / os.sysconf("SC_CLK_TCK")


def machine_seconds() -> float:
    """CPU time of everything on this machine since it started; 0 where there is no /proc."""
    if not HAS_PROC:
        return 0.0
    user, nice, system, _, _, irq, soft, *_ = map(int, Path("/proc/stat").read_text().split()[1:10])
    return (user + nice + system + irq + soft) / os.sysconf("SC_CLK_TCK")


def _usage(pid: int) -> list[int]:
    """The parent, the time of the process in the program and in the kernel, and of its ended children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return [int(fields[number]) for number in (1, 11, 12, 13, 14)]

"""A small Ray cluster of this machine: one head node, started and ended by a test."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

TESTS = Path(__file__).parents[1]
START_LIMIT = 120.0  # seconds
END_LIMIT = 60.0  # seconds

SETTINGS = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # use the loopback interface, as on those systems
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DISABLE_IMPORT_WARNING": "1",
    "RAY_enable_metrics_collection": "0",
    "RAY_memory_monitor_refresh_ms": "0",  # it would end tasks when other tests use much memory
}
"""Environment of the head node and of its drivers."""


class RayHead:
    """Two processors, a small object store, no dashboard; everything it writes is in a folder of its own."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="gw-ray-", dir="/tmp"))  # paths of sockets are short
        self.address = ""

    def start(self) -> None:
        """Start it, at the same address as before."""
        port = self.address.rpartition(":")[2]
        command = [
            str(Path(sys.executable).with_name("ray")), "start", "--head",
            "--node-ip-address", "127.0.0.1", "--port", port or "0",
            "--num-cpus", "2", "--object-store-memory", "80000000",
            "--include-dashboard", "false", "--dashboard-agent-listen-port", "0",
            "--temp-dir", str(self.folder), "--disable-usage-stats",
        ]  # fmt: skip
        environment = {**os.environ, **SETTINGS, "PYTHONPATH": str(TESTS)}
        with (self.folder / "start.log").open("w") as log:
            subprocess.run(
                command,
                env=environment,
                stdout=log,
                stderr=log,
                timeout=START_LIMIT,
                check=True,
                cwd=self.folder,
            )
        self.address = (self.folder / "ray_current_cluster").read_text().strip()

    def kill(self) -> None:
        """End all its processes with SIGKILL. Those that run tasks end with them."""
        deadline = time.monotonic() + END_LIMIT
        while found := self.processes():
            if time.monotonic() > deadline:
                raise TimeoutError(f"processes of Ray have not ended: {found}")
            for pid in found:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)

    def close(self) -> None:
        """End it and remove its files."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def processes(self) -> list[int]:
        """Its processes: all of them have its folder on their command line, or open."""
        return [pid for pid in _pids() if pid != os.getpid() and self._is_ours(pid)]

    def _is_ours(self, pid: int) -> bool:
        mark = str(self.folder)
        with suppress(OSError):
            if mark.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                return True
            return any(os.readlink(file).startswith(mark) for file in Path(f"/proc/{pid}/fd").iterdir())
        return False


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]

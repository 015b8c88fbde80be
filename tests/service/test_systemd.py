"""What workers tell systemd, on real datagram sockets."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from service.programs import Start
from support.working import PATIENCE, Jobs

TASKS = """\
import os, time
from graphile_worker import task

@task
async def block(payload, helpers):
    helpers.logger.info("blocking")
    while not os.path.exists("go_on"):
        time.sleep(0.01)

@task
async def show(payload, helpers):
    names = [name for name in os.environ if name.startswith(("NOTIFY_", "WATCHDOG_"))]
    helpers.logger.info("variables: %s", names)
"""


class Manager:
    """The socket of a service manager, and what it received: the sender and the lines of each message."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self.socket.bind(f"\0{address[1:]}" if address.startswith("@") else address)
        self.received: list[tuple[int, list[str]]] = []

    def wait_for(self, line: str, *, times: int = 1) -> tuple[int, list[str]]:
        """Wait until messages with this line have come; the last of them."""
        end = time.monotonic() + PATIENCE
        while len(found := [each for each in self.received if line in each[1]]) < times:
            assert self._receive(end - time.monotonic()), f"{line!r} did not come: {self.received}"
        return found[times - 1]

    def is_silent_for(self, seconds: float) -> bool:
        return not self._receive(seconds)

    def drain(self) -> None:
        while self._receive(0.01):
            pass

    def _receive(self, timeout: float) -> bool:
        self.socket.settimeout(max(timeout, 0.001))
        try:
            text, ancillary, _, _ = self.socket.recvmsg(4096, 1024)
        except TimeoutError:
            return False
        pid, _, _ = struct.unpack("3i", ancillary[0][2])
        self.received.append((pid, text.decode().split("\n")))
        return True


@pytest.fixture
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Manager]:
    if request.param == "abstract" and not os.path.exists("/proc/net/unix"):
        pytest.skip("abstract names are a feature of Linux")
    address = str(tmp_path / "notify") if request.param == "path" else f"@gw-{secrets.token_hex(8)}"
    if len(address) > 100:  # longer than a socket's name may be
        address = f"/tmp/gw-{secrets.token_hex(8)}"
    manager = Manager(address)
    yield manager
    manager.socket.close()
    Path(address).unlink(missing_ok=True)


def start_worker(start: Start, folder: Path, manager: Manager, *arguments: str, **more: str) -> Any:
    (folder / "tasks.py").write_text(TASKS)
    return start(
        "-m", "graphile_worker", "--tasks", "tasks.py", *arguments, NOTIFY_SOCKET=manager.address, **more
    )


@pytest.mark.parametrize("manager", ["path"], indirect=True)
async def test_a_worker_is_ready_alive_reloads_and_stops(
    start: Start, tmp_path: Path, manager: Manager, jobs: Jobs
) -> None:
    worker = start_worker(start, tmp_path, manager, "-j", "3", WATCHDOG_USEC="600000")
    sender, ready = manager.wait_for("READY=1")
    assert sender == worker.pid
    assert set(ready) == {"READY=1", f"MAINPID={worker.pid}", "STATUS=running"}
    manager.wait_for("WATCHDOG=1", times=3)
    await jobs.add("show")
    worker.wait_for("variables: []")

    await jobs.add("block")
    worker.wait_for("blocking")
    manager.drain()
    assert manager.is_silent_for(0.8)
    (tmp_path / "go_on").touch()
    signs = len([each for each in manager.received if "WATCHDOG=1" in each[1]])
    manager.wait_for("WATCHDOG=1", times=signs + 2)

    worker.send(signal.SIGHUP)
    _, reloading = manager.wait_for("RELOADING=1")
    assert reloading[1].startswith("MONOTONIC_USEC=")
    assert manager.wait_for("READY=1", times=2)[0] == worker.pid
    assert not any("STOPPING=1" in lines for _, lines in manager.received)
    worker.send(signal.SIGTERM)
    manager.wait_for("STOPPING=1")
    assert worker.ended() == 143


@pytest.mark.parametrize("manager", ["abstract"], indirect=True)
async def test_the_parent_speaks_for_its_worker_processes(
    start: Start, tmp_path: Path, manager: Manager, jobs: Jobs
) -> None:
    worker = start_worker(
        start, tmp_path, manager, "-j", "2", "--processes", "2", WATCHDOG_USEC="900000", WATCHDOG_PID="1"
    )
    assert "STATUS=running" in manager.wait_for("READY=1")[1]
    assert manager.is_silent_for(0.5)  # the watchdog is that of another process
    worker.send(signal.SIGHUP)
    manager.wait_for("RELOADING=1")
    manager.wait_for("READY=1", times=2)
    worker.send(signal.SIGTERM)
    manager.wait_for("STOPPING=1")
    assert worker.ended() == 143

    worker = start_worker(start, tmp_path, manager, "--processes", "2", WATCHDOG_USEC="900000")
    manager.wait_for("READY=1", times=3)
    manager.wait_for("WATCHDOG=1", times=2)
    await jobs.add("block")
    worker.wait_for("blocking")
    end = time.monotonic() + PATIENCE
    while not manager.is_silent_for(1.2):  # the last sign of the blocked process may still count for a while
        assert time.monotonic() < end
    (tmp_path / "go_on").touch()
    signs = len([each for each in manager.received if "WATCHDOG=1" in each[1]])
    manager.wait_for("WATCHDOG=1", times=signs + 2)
    assert {sender for sender, _ in manager.received[-2:]} == {worker.pid}
    worker.send(signal.SIGTERM)
    assert worker.ended() == 143


def test_a_manager_that_is_gone_does_not_stop_the_worker(start: Start, tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text(TASKS)
    worker = start("-m", "graphile_worker", "--tasks", "tasks.py", NOTIFY_SOCKET=str(tmp_path / "nothing"))
    worker.ready().wait_for("systemd cannot be notified at")
    worker.send(signal.SIGTERM)
    assert worker.ended() == 143

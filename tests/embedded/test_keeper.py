"""A server ends with the last program that uses it, however that program ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from embedded.asking import Embed, Participate, keepers, postmaster
from graphile_worker.database.embedded import EmbeddedPostgres
from support.programs import needed
from support.working import until

PROGRAM = """
import sys, time
from graphile_worker.database.embedded import EmbeddedPostgres

server = EmbeddedPostgres(sys.argv[1], settings={"fsync": "off", "shared_buffers": "16MB"})
server.start()
print("started", flush=True)
time.sleep(600)
"""


async def until_stopped(folder: Path) -> None:
    async def is_stopped() -> bool:
        return not EmbeddedPostgres(folder / "data").is_running

    await until(is_stopped)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_a_program_that_a_signal_ends_leaves_no_server(folder: Path, number: signal.Signals) -> None:
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(folder / "data")], stdout=subprocess.PIPE, text=True
    )
    with program:
        try:
            assert program.stdout is not None
            assert program.stdout.readline() == "started\n"
            assert EmbeddedPostgres(folder / "data").is_running
            program.send_signal(number)
            assert program.wait(timeout=60) == -number
        finally:
            program.kill()
    await until_stopped(folder)
    assert EmbeddedPostgres(folder / "data").stop_if_unused()  # waits for the one that stops it


async def test_of_several_programs_the_last_one_takes_the_server_with_it(
    participate: Participate, folder: Path
) -> None:
    first, second = participate(), participate()
    first.ask("start")
    server = postmaster(folder / "data")
    second.ask("start")
    (keeper,) = keepers(first.process.pid)
    first.process.terminate()
    first.close()

    async def has_looked() -> bool:
        return not _is_alive(keeper)

    await until(has_looked)
    assert second.ask("status")["running"]
    assert postmaster(folder / "data") == server
    second.kill()
    await until_stopped(folder)


def test_a_program_that_stops_its_server_leaves_no_keeper(participate: Participate) -> None:
    only = participate()
    only.ask("start")
    (keeper,) = keepers(only.process.pid)
    assert not only.ask("stop")["running"]
    assert not _is_alive(keeper)
    assert keepers(only.process.pid) == []


def test_a_fork_does_not_end_the_server_of_its_parent(embed: Embed) -> None:
    with embed() as server:
        child = os.fork()
        if child == 0:
            server.stop()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert server.is_running
        assert len(keepers(os.getpid())) >= 1
    assert not server.is_running


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    # A zombie has ended, even if init has not collected it yet.
    state = subprocess.run(
        [needed("ps"), "-o", "stat=", "-p", str(process)], capture_output=True, text=True
    ).stdout
    return not state.strip().startswith("Z") and bool(state.strip())

"""`graphile-worker health`: healthy, hanging, without LISTEN, missing, and files of dead workers."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.running import Run, running_in
from graphile_worker.cli.commands.health import LISTEN_INTERVAL, judge
from graphile_worker.errors import ConfigError
from graphile_worker.hooks import Hooks
from graphile_worker.hooks.events import PoolListenEcho, PoolReleased
from graphile_worker.process.health_file import HealthRecord, read_health_files
from graphile_worker.process.health_plugin import SIZE, HealthFilePlugin
from support.command_line import Call
from support.pgbouncer import pgbouncer_to
from support.working import until


@pytest.fixture
def run(place: Path, database_url: str) -> Iterator[Run]:
    (place / "tasks").mkdir()
    (place / "tasks" / "hello.py").write_text("def hello(): pass\n")
    with running_in(place) as run:
        yield run


def beat(*, turned: float = 100.0, listened: float | None = 100.0, stopping: bool = False) -> HealthRecord:
    return HealthRecord(pid=7, pool_id="pool", turned_at=turned, listened_at=listened, stopping=stopping)


async def test_a_worker_is_healthy_hangs_and_is_healthy_again(
    run: Run, call: Call, database_url: str
) -> None:
    worker = run("--health-file", "health", DATABASE_URL=database_url).ready()
    await until(lambda: call("health", "--file", "health").status == 0)
    report = call("health", "--file", "health", "--json").check().json
    assert report["healthy"] is True
    assert report["problems"] == []
    (only,) = report["workers"]
    assert only["pid"] == worker.pid
    assert only["seconds_since_turn"] < 10
    assert only["seconds_since_listen"] < 30
    worker.send(signal.SIGSTOP)
    await until(lambda: call("health", "--file", "health", "--within", "2").status == 1)
    result = call("health", "--file", "health", "--within", "2")
    assert "hangs: its event loop has not run for" in result.err
    worker.send(signal.SIGCONT)
    await until(lambda: call("health", "--file", "health", "--within", "3").status == 0)


async def test_a_worker_that_ended_is_not_well_and_leaves_nothing_behind(
    run: Run, call: Call, place: Path, database_url: str
) -> None:
    worker = run(DATABASE_URL=database_url, GRAPHILE_WORKER_HEALTH_FILE=str(place / "run" / "health"))
    worker.ready()
    await until(lambda: call("health", "--file", place / "run" / "health").status == 0)
    worker.send(signal.SIGTERM)
    assert worker.ended() == 143
    result = call("health", "--file", place / "run" / "health")
    assert result.status == 1
    assert "no worker is running with the health file" in result.err
    assert list((place / "run").iterdir()) == []


async def test_what_a_killed_worker_left_does_not_count(
    run: Run, call: Call, place: Path, database_url: str
) -> None:
    worker = run("--health-file", "health", DATABASE_URL=database_url).ready()
    await until(lambda: call("health", "--file", "health").status == 0)
    worker.process.kill()
    worker.ended()
    assert (place / f"health.{worker.pid}").exists()
    assert call("health", "--file", "health").status == 1
    assert not (place / f"health.{worker.pid}").exists()


async def test_each_of_several_processes_counts(run: Run, call: Call, database_url: str) -> None:
    run("--health-file", "health", "--processes", 2, DATABASE_URL=database_url).wait_for("ready: ", times=2)
    await until(lambda: call("health", "--file", "health").status == 0)
    report = call("health", "--file", "health", "--json").check().json
    assert len({worker["pid"] for worker in report["workers"]}) == 2


def test_a_path_that_cannot_be_written_is_said_at_the_start(
    spawn: Call, place: Path, run: Run, database_url: str
) -> None:
    (place / "file").write_text("")
    result = spawn("--health-file", "file/health", DATABASE_URL=database_url)
    assert result.status == 1
    assert "health_file: file/health." in result.err
    assert "cannot be written" in result.err


def test_without_a_health_file_the_advice_says_how_to_set_one(call: Call) -> None:
    result = call("health")
    assert result.status == 1
    for way in ("--health-file", "GRAPHILE_WORKER_HEALTH_FILE", "--file"):
        assert way in result.err


def test_the_file_comes_from_the_environment_too(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHILE_WORKER_HEALTH_FILE", "/nowhere/health")
    assert "no worker is running with the health file /nowhere/health" in call("health").err
    assert call("health", "--json").json == {
        "healthy": False,
        "problems": ["no worker is running with the health file /nowhere/health"],
        "workers": [],
    }


def test_signs_of_life_must_be_young_enough() -> None:
    def problem(beat: HealthRecord, now: float, *, must_listen: bool = True) -> str:
        return judge(beat, now, within=10, must_listen=must_listen).problem or ""

    assert problem(beat(), 105) == ""
    assert "hangs" in problem(beat(), 111)
    assert problem(beat(turned=140), 100 + LISTEN_INTERVAL - 1) == ""
    assert "LISTEN last worked 46 s ago" in problem(beat(turned=140), 146)
    assert "LISTEN has not worked yet" in problem(beat(listened=None), 105)
    assert problem(beat(listened=None), 105, must_listen=False) == ""
    assert problem(beat(listened=None, stopping=True), 105) == ""
    assert judge(None, 0, within=10, must_listen=True).problem == "a worker process has not started yet"
    unhealthy = HealthRecord(pid=7, pool_id="pool", turned_at=100, stopping=True, unhealthy="4 tasks hang")
    assert problem(unhealthy, 105) == "worker process 7 is shutting down: 4 tasks hang"
    blocked = HealthRecord(
        pid=7, pool_id="pool", turned_at=100, blocked_by="task a (job 1)", blocked_since=101
    )
    assert problem(blocked, 117) == (
        "worker process 7 hangs: task a (job 1) has blocked its event loop for 16 s"
    )


async def test_a_path_in_a_configuration_file_is_relative_to_that_file(
    run: Run, call: Call, place: Path, database_url: str
) -> None:
    (place / "etc").mkdir()
    (place / "etc" / "worker.toml").write_text('health_file = "run/health"\ntask_directory = "../tasks"\n')
    worker = run("-C", "etc/worker.toml", DATABASE_URL=database_url).ready()
    await until(lambda: call("health", "-C", "etc/worker.toml").status == 0)
    assert (place / "etc" / "run" / f"health.{worker.pid}").exists()
    assert call("health", "--file", "etc/run/health").status == 0  # on the command line: as one would expect


async def test_a_worker_that_cannot_listen_is_not_well_unless_it_need_not(
    run: Run, call: Call, database_url: str
) -> None:
    with pgbouncer_to(database_url) as url:
        worker = run("--health-file", "health", "--no-prepared-statements", DATABASE_URL=url).ready()
        await until(lambda: call("health", "--file", "health", "--no-listen").status == 0)
        result = call("health", "--file", "health")
        assert result.status == 1
        assert "gets no notifications: LISTEN has not worked yet" in result.err
        worker.send(signal.SIGTERM)
        worker.ended()


# -- a directory that all users may write to ---------------------------------------------------------------


async def test_a_planted_link_is_neither_followed_nor_written_to(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    ours = tmp_path / f"health.{os.getpid()}"
    for planted in (ours, Path(f"{ours}.new")):
        planted.symlink_to(victim)
    plugin = HealthFilePlugin(str(tmp_path / "health"))
    hooks = Hooks()
    plugin.install(hooks)
    hooks.events.emit(PoolListenEcho(pool_id="pool"))
    assert victim.read_text() == "precious"
    assert not ours.is_symlink()
    assert [beat.pid if beat else None for beat in read_health_files(str(tmp_path / "health"))] == [
        os.getpid()
    ]
    hooks.events.emit(PoolReleased(pool_id="pool"))
    assert not ours.exists()


async def test_a_file_is_not_closed_while_another_thread_writes_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its descriptor could be another file's by then."""
    writing, closed = threading.Event(), threading.Event()
    was_closed: list[bool] = []
    plugin = HealthFilePlugin(str(tmp_path / "health"))
    hooks = Hooks()
    plugin.install(hooks)

    def pwrite(*_: object) -> None:
        writing.set()
        was_closed.append(closed.wait(0.3))  # timing: must run out; nothing may close it

    def close(descriptor: int) -> None:
        closed.set()
        real_close(descriptor)

    real_close = os.close
    monkeypatch.setattr(os, "pwrite", pwrite)
    monkeypatch.setattr(os, "close", close)
    (report,) = hooks.table.loop_blocked
    thread = threading.Thread(target=report, args=("task forever (job 17)", 1.0))
    thread.start()
    assert writing.wait(60)
    hooks.events.emit(PoolReleased(pool_id="pool"))
    thread.join(60)
    assert was_closed == [False]
    assert closed.is_set()
    report("too late", 2.0)
    assert was_closed == [False]


async def test_the_longest_name_of_a_task_fits(tmp_path: Path) -> None:
    plugin = HealthFilePlugin(str(tmp_path / "health"))
    hooks = Hooks()
    plugin.install(hooks)
    name = "\x01" * 128
    (report,) = hooks.table.loop_blocked
    report(f"task {name} (job {2**63 - 1})", 1e9)
    (record,) = read_health_files(str(tmp_path / "health"))
    assert record is not None
    assert record.blocked_by == f"task {name} (job {2**63 - 1})"
    assert os.path.getsize(tmp_path / f"health.{os.getpid()}") == SIZE
    hooks.events.emit(PoolReleased(pool_id="pool"))


def test_a_path_that_cannot_be_replaced_is_an_error_and_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / f"health.{os.getpid()}").mkdir()
    with pytest.raises(ConfigError, match="health_file"):
        HealthFilePlugin(str(tmp_path / "health")).install(Hooks())
    assert [path.name for path in tmp_path.iterdir()] == [f"health.{os.getpid()}"]


def test_what_others_put_beside_the_files_is_passed_over(tmp_path: Path) -> None:
    """A link is not followed, and a pipe without a writer does not block the health check."""
    (tmp_path / "health.1").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").write_text("{}")
    os.mkfifo(tmp_path / "health.2")
    assert read_health_files(str(tmp_path / "health")) == []
    assert {path.name for path in tmp_path.iterdir()} == {"health.1", "health.2", "elsewhere"}

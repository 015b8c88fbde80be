"""The pure parts of the live view: summaries, reports, rates, and drawing at any width."""

from __future__ import annotations

import io
from pathlib import Path

from rich.cells import cell_len
from rich.console import Console

from graphile_worker.cli.dev.feed import (
    MOST_ERRORS,
    MOST_RUNNING,
    FeedPlugin,
    Snapshot,
    error_of,
)
from graphile_worker.cli.dev.render import ShownRate, ViewState, render
from graphile_worker.database.statements.inspection import JobCounts
from graphile_worker.hooks import Hooks
from graphile_worker.hooks.events import JobCompleted, PoolCreated
from graphile_worker.runner.process.reports import receiving
from graphile_worker.values.job import Pause
from support.cases import looped
from support.finished import a_job
from support.working import until


def snapshot(completed: int = 0, failed: int = 0) -> Snapshot:
    return Snapshot(completed=completed, failed=failed, running=0, jobs=[], errors=[])


def busy(path: str = "") -> FeedPlugin:
    plugin = FeedPlugin(path)
    for number in range(50):
        plugin._running[number] = (f"task {number}\x1b[31m" + "語" * 80, 10.0)
        plugin._failed += 1
        plugin._errors.append(error_of(0.0, number, "t" * 200, 1, 25, "two\nlines " + "\U0001f600" * 500))
    return plugin


def drawn(state: ViewState, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    console.print(render(state))
    output = console.file
    assert isinstance(output, io.StringIO)
    return output.getvalue().splitlines()


def test_the_longest_running_jobs_and_the_last_errors_are_reported() -> None:
    plugin, hooks = busy(), Hooks()
    plugin.install(hooks)
    hooks.events.emit(JobCompleted(job=a_job(0), worker_id="slot", error=None))
    snapshot = plugin.snapshot(12.5)
    assert snapshot.running == 49
    assert [job.id for job in snapshot.jobs] == list(range(1, 1 + MOST_RUNNING))
    assert snapshot.jobs[0].seconds == 2.5
    assert [error.job_id for error in snapshot.errors] == list(range(50 - MOST_ERRORS, 50))
    assert snapshot.failed == 50
    assert "\n" not in snapshot.errors[0].message


async def test_a_report_arrives_as_it_was_and_the_last_one_too() -> None:
    reports: list[Snapshot] = []
    hooks = Hooks()
    async with receiving(Snapshot, reports.append) as path:
        plugin = busy(path)
        plugin.install(hooks)
        hooks.events.emit(PoolCreated(pool_id="pool"))
        await until(lambda: bool(reports))
        assert (reports[0].failed, reports[0].running) == (50, 50)
        assert reports[0].errors == busy().snapshot(12.0).errors
        plugin._completed += 1
        await plugin.stop()
        await until(lambda: reports[-1].completed == 1)


async def test_a_worker_whose_parent_is_gone_goes_on(tmp_path: Path) -> None:
    plugin = FeedPlugin(str(tmp_path / "nothing"))
    hooks = Hooks()
    plugin.install(hooks)
    hooks.events.emit(PoolCreated(pool_id="pool"))
    await until(lambda: plugin._loop.is_done)
    await plugin.stop()


def test_a_rate_is_that_of_the_last_seconds() -> None:
    rate = ShownRate(10.0)
    assert rate.per_second() == 0.0
    rate.add(0.0, 0)
    rate.add(2.0, 10)
    assert rate.per_second() == 5.0
    for second in range(3, 30):
        rate.add(float(second), 10)
    assert rate.per_second() == 0.0


def test_totals_continue_when_the_worker_is_restarted() -> None:
    state = ViewState(database="here")
    state.started()
    assert state.status == "starting"
    state.update(snapshot(5, 1), 1.0)
    assert state.status == "running"
    state.ended("restarting", "a file changed")
    state.update(snapshot(6, 1), 2.0)  # its last report
    assert state.status == "restarting"
    state.started()
    state.update(snapshot(1, 0), 3.0)
    assert (state.completed, state.failed) == (7, 1)


@looped("width", [40, 80, 81, 120, 200])
def test_no_line_is_wider_than_the_terminal_whatever_is_in_it(width: int) -> None:
    state = ViewState(database="PostgreSQL 18.4 in " + "x" * 100, reason="a\nb\tc" + "!" * 300)
    state.counts = JobCounts(ready=10**9, scheduled=10**9, running=10**6, failed=10**9)
    state.update(busy().snapshot(10_000.0), 1.0)
    state.ended("waiting", "why\n" * 100)
    for view in (state, ViewState(database="")):
        lines = drawn(view, width)
        assert {cell_len(line) for line in lines} == {width}
        assert lines[0].startswith("╭─ graphile-worker dev")
    text = "\n".join(drawn(state, width))
    assert "\x1b" not in text
    assert "waiting: why" in text


def test_an_error_of_the_database_is_shown_in_place_of_the_counts() -> None:
    state = ViewState(database="here", count_error="the connection was lost")
    assert any("the connection was lost" in line for line in drawn(state, 80))


def test_pauses_are_shown_with_their_terms_and_the_rest_is_counted() -> None:
    state = ViewState("db", pauses=[Pause(task_identifier="send", reason="deploy")])
    assert any("paused   task send (deploy)" in line for line in drawn(state, 80))
    state.pauses = [Pause(queue_name=f"q{number}") for number in range(8)]
    text = "\n".join(drawn(state, 80))
    assert "queue q4" in text
    assert "queue q5" not in text
    assert "and 3 more" in text

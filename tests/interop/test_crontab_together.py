"""A Node worker and two Python workers with the same crontab on one database: one job per run in all.

The long test takes real minutes and so runs only where GRAPHILE_WORKER_SLOW_INTEROP=1 is set, as `make
interop` does.
"""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path

import asyncpg
import pytest

from interop.conftest import SharedDatabase
from interop.crontab_crew import MINUTE, NODE, PYTHONS, Added, Crew, crew_of, minutes, now
from interop.runs import Run

pytestmark = pytest.mark.interop

SLOW = "GRAPHILE_WORKER_SLOW_INTEROP"

CRONTAB = """
# plain, keyed, with a payload and options, every other minute, and one that makes up for what was missed
* * * * * plain
* * * * * keyed ?jobKey=one&queue=serial
* * * * * carrying ?id=carrier&priority=-5&max=3 {kind: 'daily', list: [1, 2], nested: {a: .5}, _cron: 1}
*/2 * * * * halved
* * * * * filled ?fill=3h {}
"""
TASKS = ("plain", "keyed", "carrying", "halved", "filled")
IDENTIFIERS = {task: "carrier" if task == "carrying" else task for task in TASKS}
EACH_MINUTE = [IDENTIFIERS[task] for task in TASKS if task != "halved"]
PAYLOADS = {"carrying": '"kind":"daily","list":[1,2],"nested":{"a":0.5},'}
WAITING = """
    count(DISTINCT application_name) = $1 FROM pg_stat_activity
    WHERE datname = current_database() AND wait_event_type = 'Lock'
"""
MISSED = 20  # minutes before the start in which `filled` did not run


def cron_text(task: str, minute: datetime, *, backfilled: bool) -> str:
    """The payload's text to the letter."""
    flag = "true" if backfilled else "false"
    marker = f'"_cron":{{"ts":"{minute:%Y-%m-%dT%H:%M}:00.000Z","backfilled":{flag}}}'
    return "{" + PAYLOADS.get(task, "") + marker + "}"


def once_each(wanted: Iterable[datetime]) -> Counter[datetime]:
    return Counter(dict.fromkeys(wanted, 1))


def minute_of(run: Run) -> datetime:
    return datetime.fromisoformat(run.payload["_cron"]["ts"])


@pytest.mark.skipif(
    os.environ.get(SLOW) != "1", reason=f"takes four minutes; set {SLOW}=1 or use make interop"
)
async def test_one_crontab_in_node_and_python_adds_one_job_per_run_while_workers_come_and_go(
    our_database: SharedDatabase, tmp_path: Path
) -> None:
    began = now()
    missed_since = minutes(began - MISSED * MINUTE, began)[0]
    async with crew_of(our_database, tmp_path, CRONTAB, TASKS) as crew:
        await crew.know("filled", since=began - timedelta(days=1), last=missed_since - MINUTE)
        await crew.start(NODE, *PYTHONS)
        all_running = now()
        await crew.tick(*EACH_MINUTE)
        await crew.stop(NODE)
        await crew.tick(*EACH_MINUTE)
        await crew.start(NODE)
        await crew.stop(*PYTHONS)
        await crew.tick(*EACH_MINUTE)
        await crew.start(*PYTHONS)
        await crew.tick(*EACH_MINUTE)
        await our_database.runs.wait_until_idle()
    known, added, runs = await crew.known(), await crew.added(), await our_database.runs.all()
    print(tick_table(added, runs))

    assert set(known) == set(IDENTIFIERS.values())
    last = known["plain"].last_execution
    assert last is not None
    assert last - began > 3 * MINUTE
    assert {known[identifier].last_execution for identifier in EACH_MINUTE} == {last}
    assert known["filled"].known_since == began - timedelta(days=1), "a row that is known stays as it is"
    for task, identifier in IDENTIFIERS.items():
        due = minutes(missed_since if task == "filled" else known[identifier].known_since, last)
        if task == "halved":
            due = [minute for minute in due if minute.minute % 2 == 0]
            assert known["halved"].last_execution == due[-1]
        assert Counter(job.run_at for job in added if job.task == task) == once_each(due), task
        assert Counter(minute_of(run) for run in runs if run.task == task) == once_each(due), task

    for job in added:
        assert job.added_at >= job.run_at, "no job is added before its minute"
        flags = {True} if job.run_at < began else {False} if job.run_at >= all_running else {True, False}
        assert job.payload in {cron_text(job.task, job.run_at, backfilled=flag) for flag in flags}
        assert (job.max_attempts, job.priority) == ((3, -5) if job.task == "carrying" else (25, 0))
        assert (job.key, job.is_queued) == (("one", True) if job.task == "keyed" else (None, False))
        assert not crew.was_away(job.adder, job.run_at) or job.run_at < began
    assert all(run.started >= minute_of(run) for run in runs), "no job runs before its minute"
    assert all(run.attempt == 1 for run in runs)
    assert {job.adder for job in added} >= {NODE}, "Node was alone for a minute"
    assert {job.adder for job in added} & set(PYTHONS), "and so were the Python workers"
    assert {run.worker for run in runs} == {"node", "python"}
    assert await our_database.connection.fetchval("SELECT count(*) FROM graphile_worker.jobs") == 0
    assert crew.complaints == []


async def test_runs_that_node_and_python_make_up_for_at_the_same_moment_are_added_once(
    either_database: SharedDatabase, tmp_path: Path
) -> None:
    """All have read what was missed before the first of them may write it: the row is held until then."""
    began = now()
    missed_since = minutes(began - timedelta(hours=10), began)[0]
    async with crew_of(either_database, tmp_path, "* * * * * filled ?fill=1d", ["other"]) as crew:
        # Not a whole minute: Node begins with the minute of the last run, which would cost it its turn.
        await crew.know("filled", since=missed_since, last=missed_since - MINUTE / 2)
        async with row_held(either_database.url, "filled"):
            await crew.start(NODE)
            await either_database.runs.wait_until(WAITING, 1)  # so that it is the first to go on
            await crew.start(*PYTHONS)
            await either_database.runs.wait_until(WAITING, 3)
            all_wait = now()
        await settled(crew, all_wait)
    added = await crew.added()
    last = (await crew.known())["filled"].last_execution
    assert last is not None
    adders = Counter(job.adder for job in added)
    assert NODE in adders
    assert set(PYTHONS) & set(adders)
    assert Counter(job.run_at for job in added) == once_each(minutes(missed_since, last))
    for job in added:
        marker = json.loads(job.payload)["_cron"]
        assert job.payload == cron_text("filled", job.run_at, backfilled=marker["backfilled"])
        assert marker["backfilled"] or job.run_at >= began


@asynccontextmanager
async def row_held(url: str, identifier: str) -> AsyncIterator[None]:
    """Nobody can move this item's last run forward while the block runs."""
    holder = await asyncpg.connect(url)
    try:
        async with holder.transaction():
            await holder.execute(
                "SELECT FROM graphile_worker._private_known_crontabs WHERE identifier = $1 FOR UPDATE",
                identifier,
            )
            yield
    finally:
        await holder.close(timeout=60)


async def settled(crew: Crew, moment: datetime) -> None:
    """Until every run up to `moment` is added."""
    minute = minutes(moment - MINUTE, moment)[-1]
    last = "max(last_execution) FROM graphile_worker._private_known_crontabs"
    await crew.database.runs.wait_until(f"$1 <= {last}", minute)


def tick_table(added: Iterable[Added], runs: Iterable[Run]) -> str:
    """Who added and who ran the jobs of each minute, for people."""
    ran = {(run.task, minute_of(run)): run.worker for run in runs}
    lines: dict[datetime, list[str]] = defaultdict(list)
    for job in added:
        late = (job.added_at - job.run_at) / timedelta(milliseconds=1)
        when = f"+{late:.0f} ms" if late < 60_000 else "backfill"
        runner = ran.get((job.task, job.run_at))
        lines[job.run_at].append(f"{job.task}: {job.adder} {when}, ran by {runner}")
    return "\n".join(f"{minute:%H:%M}  " + " | ".join(line) for minute, line in sorted(lines.items()))

"""A Node worker and Python workers with one crontab on one database, and a record of who added which job.

Each worker is a process of its own that reads the same crontab file. Their connections carry the worker's
name, and a trigger notes it down with every job, since the jobs themselves do not tell who added them.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from interop.conftest import SharedDatabase
from interop.node import Node
from support.worker_process import WorkerProcess, starting
from support.working import until

TESTS = Path(__file__).parent.parent
NODE = "node"
PYTHONS = ("python-1", "python-2")
MINUTE = timedelta(minutes=1)
TICK_PATIENCE = 90.0  # seconds; the next minute is at most sixty away

AUDIT = """
    CREATE TABLE public.cron_adds (
        adder text, task text, payload text, run_at timestamptz, max_attempts integer, priority integer,
        key text, is_queued boolean, added_at timestamptz DEFAULT clock_timestamp()
    );
    CREATE FUNCTION public.note_cron_add() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO public.cron_adds
        SELECT current_setting('application_name'), task.identifier, new.payload::text, new.run_at,
               new.max_attempts, new.priority, new.key, new.job_queue_id IS NOT NULL
        FROM graphile_worker._private_tasks task WHERE task.id = new.task_id;
        RETURN NULL;
    END $$;
    CREATE TRIGGER note_cron_add AFTER INSERT ON graphile_worker._private_jobs
        FOR EACH ROW EXECUTE FUNCTION public.note_cron_add();
"""


@dataclass(frozen=True)
class Added:
    """One job as it was when it was added."""

    adder: str
    task: str
    payload: str
    run_at: datetime
    max_attempts: int
    priority: int
    key: str | None
    is_queued: bool
    added_at: datetime


@dataclass(frozen=True)
class Known:
    """What the database remembers of one item."""

    known_since: datetime
    last_execution: datetime | None


@dataclass(frozen=True)
class Absence:
    """A time in which a worker was certainly not running."""

    worker: str
    start: datetime
    end: datetime


def minutes(start: datetime, end: datetime) -> list[datetime]:
    """Every minute from `start` (or the first one after it) to `end`, `end` included."""
    first = -(-start.timestamp() // 60)
    return [datetime.fromtimestamp(60 * n, UTC) for n in range(int(first), int(end.timestamp() // 60) + 1)]


def now() -> datetime:
    return datetime.now(UTC)


class Crew:
    """The workers: started and stopped by name, with the times at which each was away."""

    def __init__(self, database: SharedDatabase, folder: Path, tasks: Sequence[str]) -> None:
        self.database = database
        self.connection = database.connection
        self.absences: list[Absence] = []
        self.complaints: list[str] = []
        self._folder = folder
        self._tasks = tasks
        self._running: dict[str, AsyncExitStack] = {}
        self._gone_since: dict[str, datetime] = {}

    async def start(self, *names: str) -> None:
        """Start workers, all at the same time; until each of them says that it is ready."""
        for name in names:
            if (since := self._gone_since.pop(name, None)) is not None:
                self.absences.append(Absence(name, since, now()))
            self._running[name] = AsyncExitStack()
        async with asyncio.TaskGroup() as group:
            for name in names:
                worker = self._node() if name == NODE else self._python(name)
                group.create_task(self._running[name].enter_async_context(worker))

    async def stop(self, *names: str) -> None:
        """Stop workers gracefully, all at the same time."""
        async with asyncio.TaskGroup() as group:
            for name in names:
                group.create_task(self._running[name].aclose())
        for name in names:
            del self._running[name]
            self._gone_since[name] = now()

    async def close(self) -> None:
        await self.stop(*list(self._running))

    async def tick(self, *items: str) -> datetime:
        """Until the jobs of the next minute are added for these items and done; that minute."""
        minute = minutes(now(), now() + MINUTE)[0]

        async def has_come() -> bool:
            known = await self.known()
            return all((known[item].last_execution or known[item].known_since) >= minute for item in items)

        await until(has_come, timeout=TICK_PATIENCE, every=0.05)
        await self.database.runs.wait_until_idle()
        return minute

    async def known(self) -> dict[str, Known]:
        rows = await self.connection.fetch("SELECT * FROM graphile_worker._private_known_crontabs")
        return {row["identifier"]: Known(row["known_since"], row["last_execution"]) for row in rows}

    async def know(self, identifier: str, *, since: datetime, last: datetime) -> None:
        """Let the database remember an item that ran last at `last`."""
        await self.connection.execute(
            "INSERT INTO graphile_worker._private_known_crontabs VALUES ($1, $2, $3)", identifier, since, last
        )

    async def added(self) -> list[Added]:
        """Every job added so far, in order."""
        rows = await self.connection.fetch("SELECT * FROM public.cron_adds ORDER BY run_at, task")
        return [Added(**row) for row in rows]

    def was_away(self, worker: str, minute: datetime) -> bool:
        return any(
            absence.worker == worker and absence.start <= minute < absence.end for absence in self.absences
        )

    @asynccontextmanager
    async def _node(self) -> AsyncIterator[None]:
        node = Node(self.database.node.packages, self._url(NODE))
        options: dict[str, Any] = {"crontabFile": str(self._folder / "crontab"), "pollInterval": 500}
        async with node.worker(*self._tasks, **options) as worker:
            yield
        self.complaints += [line for line in worker.output if line.strip() not in ("ready", "")]

    @asynccontextmanager
    async def _python(self, name: str) -> AsyncIterator[None]:
        with starting(self._folder) as start:
            process = start(
                "--crontab", "crontab", "--poll-interval", 500,
                url=self._url(name), tasks=self._folder / "tasks", PYTHONPATH=str(TESTS),
            )  # fmt: skip
            await asyncio.to_thread(process.ready)
            yield
            process.send(signal.SIGTERM)
            await asyncio.to_thread(process.ended)
            assert process.was_killed_by() in (None, signal.SIGTERM), process.output
            self.complaints += complaints_of(process)

    def _url(self, name: str) -> str:
        url = self.database.url
        return f"{url}{'&' if '?' in url else '?'}application_name={name}"


def complaints_of(process: WorkerProcess) -> list[str]:
    words = ("WARNING", "ERROR", "CRITICAL", "Traceback")
    return [line for line in process.output.splitlines() if any(word in line for word in words)]


@asynccontextmanager
async def crew_of(
    database: SharedDatabase, folder: Path, crontab: str, tasks: Sequence[str]
) -> AsyncIterator[Crew]:
    """Workers that have these tasks, each of which records its runs; none is started yet."""
    (folder / "crontab").write_text(crontab)
    (folder / "tasks").mkdir()
    for task in tasks:
        (folder / "tasks" / f"{task}.py").write_text(f"from interop.python_tasks import record as {task}\n")
    await database.connection.execute(AUDIT)
    crew = Crew(database, folder, tasks)
    try:
        yield crew
    finally:
        await crew.close()

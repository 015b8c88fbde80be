"""The load: clients that add jobs of every kind, and note in the same transaction what they added.

So the note is there if and only if the add was committed, whatever happens to the connection. It is numbered
after the add, while the transaction holds the row of the key: numbers of one key follow the commits.
"""

from __future__ import annotations

import asyncio
import random
from datetime import timedelta
from typing import Any

import asyncpg
import msgspec

from chaos.history import BLOCKING, BULK_QUEUE, LIMITED, WIDE, Added, Fails, PauseKind
from graphile_worker import JobSpec, make_worker_utils
from graphile_worker.client import WorkerUtils
from support.working import SCHEMA

TABLE = """
create table chaos_added (
  number bigserial primary key, token text not null unique, job_id bigint not null, key text, queue text,
  fails text not null, max_attempts integer not null, kept boolean not null,
  at timestamptz not null default clock_timestamp()
)
"""
NOTE = (
    "insert into chaos_added (token, job_id, key, queue, fails, max_attempts, kept) select * from "
    "unnest($1::text[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::integer[], $7::boolean[])"
)
LONG = "/long"
"""The end of the token of a job that outlasts a held batch."""
SHORTEST_LONG = 0.4  # seconds
BULK = f"""
with dice as materialized (
  select n, random() as kind, random() as fate, random() as more from generate_series(1, $2::integer) n
), jobs as (
  select
    case
      when kind < 0.0004 then {SHORTEST_LONG} + 0.6 * more when kind < 0.05 then 0.001 + 0.004 * more else 0
    end as seconds,
    case when fate < 0.001 then 'always' when fate < 0.004 then 'once' else 'never' end as fails,
    $1::text || '-' || n || case when kind < 0.0004 then '{LONG}' else '' end as token, n,
    case when $3::integer > 0 then '{BULK_QUEUE}' || n % $3 end as queue,
    case when $3 = 0 and fate > 0.7 then array['py:keep'] end as flags
  from dice
), specs as (
  select array_agg((
    'work', json_build_object('token', token, 'queue', queue, 'fails', fails, 'seconds', seconds), queue,
    case when $3 > 0 then now() - interval '10 ms' + n * interval '1 microsecond' end,
    case when fails = 'always' then 1 else 25 end, null, null, flags
  )::{SCHEMA}.job_spec) as specs from jobs
)
insert into chaos_added (token, job_id, queue, fails, max_attempts, kept)
select
  job.payload->>'token', job.id, job.payload->>'queue', job.payload->>'fails', job.max_attempts,
  job.flags is not null
from specs cross join lateral {SCHEMA}.add_jobs(specs.specs) job
"""
WAITING = f"select count(*) from (select from {SCHEMA}._private_jobs limit $1) job"
MOST_WAITING = 20_000  # jobs
BULK_PAUSE = 0.3  # seconds
SLOW_BULK, SLOW_BULK_PAUSE = 500, 1.0
SLOW_QUEUED_BULK = 100  # one job per commit in each queue
PAUSE = 0.3  # seconds between two tries to connect
LINGERS = (1.2, 2.0)  # seconds, more than the slack of watermarks
OVERDUE = (10.0, 3600.0)  # seconds
BLOCKS = (0.1, 0.4)  # seconds
WIDE_QUEUES = 2
TRY_FOR = 10.0  # seconds for one add; the server may be away, but it answers or ends the connection


class Load(msgspec.Struct, frozen=True):
    """How much is added, and of what."""

    adders: int = 3
    pause: float = 0.05
    """Mean seconds between two adds of one client."""
    queues: int = 4
    keys: int = 6
    longest: float = 2.5
    """Seconds that the longest tasks last."""
    failing: float = 0.1
    """The share of jobs that fail by design: some once, some permanently."""
    kept: float = 0.5
    """The share of jobs whose end is kept."""
    short: float = 0.08
    """Seconds that the other tasks last at most."""
    long: float = 0.08
    """The share of jobs without a queue that last long."""
    limited: float = 0.03
    """The share of jobs that have a limit. They last a quarter of a second, so the limit is often used up."""
    wide: float = 0.0
    """The share of jobs in wide queues. They last as long as limited ones, which may be among them."""
    pauses: tuple[PauseKind, ...] = ()
    """What an operator pauses from time to time."""
    batches: float = 0.15
    """The share of adds that add several jobs."""
    keyed: float = 0.3
    """The share of adds that use a key, of those that may."""
    queued: float = 0.35
    """The share of jobs in named queues."""
    later: float = 0.1
    """The share of jobs that are due a little later."""
    overdue: float = 0.05
    """The share of jobs that were due long ago when they are added."""
    lingering: float = 0.02
    """The share of adds whose transaction takes so long that others are added and run meanwhile."""
    blocking: float = 0.01
    """The share of jobs that block the event loop of their worker."""
    in_thread: float = 0.3
    """The share of jobs that run in threads."""
    batch: int = 15
    """The most jobs that are added at once."""
    bulk: int = 0
    """How many short jobs are added at once by the server itself, several times a second."""
    bulk_queues: int = 0
    """The number of named queues that these are in."""
    jobs: int | None = None
    """The load ends when this many jobs were added, and not earlier; None: when the time is over."""


MANY_KEPT = Load(
    adders=4, pause=0.1, queues=8, longest=0.5, short=0.004, long=0.002, kept=0.9, limited=0.002, batches=0.9,
    batch=60,
)  # fmt: skip
"""Many short jobs, most of which are kept: writes are large and follow each other closely."""

MANY_SHORT = Load(
    adders=2, pause=0.3, longest=1.0, short=0.005, long=0.03, kept=0.1, limited=0.0, batches=0.1, batch=40,
    keyed=0.03, queued=0.01, in_thread=0.1, bulk=1500,
)  # fmt: skip
"""Short jobs in large numbers, which are held; few of another kind are among them."""
MANY_IN_QUEUES = msgspec.structs.replace(MANY_SHORT, bulk=600, bulk_queues=4, queued=0.1)
"""The same in few queues: they run one at a time, many in a transaction."""
MIXED = Load(adders=2, pause=0.1, longest=1.0)
"""What is added besides when a death has made all workers careful, and nothing is held."""

CONTROL = Load(wide=0.12, limited=0.04, pauses=("queue", "queue", "queue", "task", "task", "all"))
"""Wide queues, and an operator who pauses things."""


def load_of(seed: int) -> Load:
    """What a run with this seed is loaded with: every third one has wide queues and pauses."""
    return CONTROL if seed % 3 == 1 else Load()


class Bulk:
    """A client that has the server make short jobs, so that it takes no time of the test's own process.

    Most take no time, some a few milliseconds; a few outlast a held batch, fail once or permanently, and some
    are kept. Those of named queues are due in the order of their numbers, and none of them is kept.
    """

    def __init__(self, url: str, load: Load) -> None:
        self._url = url
        self._most = load.bulk
        self._queues = load.bulk_queues
        self._number = 0
        self.is_slow = False
        """Whether to add fewer, because nothing is held at the moment."""

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set() and self._most:
            try:
                connection = await asyncpg.connect(self._url, timeout=TRY_FOR)
                try:
                    while not stop.is_set():
                        self._number += 1
                        slow = SLOW_QUEUED_BULK if self._queues else SLOW_BULK
                        count = slow if self.is_slow else self._most
                        if await connection.fetchval(WAITING, MOST_WAITING) < MOST_WAITING:
                            name = f"b{self._number}"
                            await connection.execute(BULK, name, count, self._queues, timeout=TRY_FOR)
                        await asyncio.sleep(SLOW_BULK_PAUSE if self.is_slow else BULK_PAUSE)
                finally:
                    connection.terminate()
            except Exception:  # the server is away
                await asyncio.sleep(PAUSE)


class Adder:
    """One client."""

    def __init__(self, number: int, seed: int, url: str, load: Load) -> None:
        self._name = f"a{number}"
        self._dice = random.Random(f"{seed}/adder {number}")
        self._url = url
        self._load = load
        self._count = 0
        self.failures = 0
        self.added = 0
        """Jobs whose add was committed, as far as this client knows."""

    async def run(self, stop: asyncio.Event) -> None:
        """Add jobs until stopped; continue after errors."""
        while not stop.is_set():
            try:
                async with make_worker_utils(connection_string=self._url, max_pool_size=1) as utils:
                    while not stop.is_set():
                        async with asyncio.timeout(TRY_FOR):
                            await self._add(utils)
                        await asyncio.sleep(self._dice.expovariate(1 / self._load.pause))
            except Exception:
                self.failures += 1
                await asyncio.sleep(PAUSE)

    async def _add(self, utils: WorkerUtils) -> None:
        dice = self._dice
        is_batch = dice.random() < self._load.batches
        specs: list[JobSpec] = []
        for _ in range(dice.randint(2, self._load.batch) if is_batch else 1):
            # One key in a batch: with more, two clients could wait for each other.
            specs.append(self._spec(may_have_key=not any(spec.job_key for spec in specs)))
        is_undone = dice.random() < 0.03
        # Not with a key: others would wait for it.
        is_lingering = dice.random() < self._load.lingering and not any(spec.job_key for spec in specs)
        async with utils.with_pg_client() as connection:
            transaction = connection.transaction()
            await transaction.start()
            if is_batch:
                jobs = await utils.add_jobs(specs, connection=connection)
            else:
                jobs = [await self._add_one(utils, specs[0], connection)]
            await note_jobs(connection, specs, jobs)
            if is_lingering:
                await asyncio.sleep(dice.uniform(*LINGERS))
            await (transaction.rollback() if is_undone else transaction.commit())
        self.added += 0 if is_undone else len(jobs)

    async def _add_one(self, utils: WorkerUtils, spec: JobSpec, connection: Any) -> Any:
        values = {
            name: getattr(spec, name) for name in ("queue_name", "job_key", "job_key_mode", "run_at", "keep")
        }
        return await utils.add_job(
            spec.task_identifier,
            spec.payload,
            max_attempts=spec.max_attempts,
            connection=connection,
            **values,
        )

    def _spec(self, *, may_have_key: bool) -> JobSpec:
        dice, load = self._dice, self._load
        self._count += 1
        kind = dice.random()
        fails: Fails = "always" if kind < 0.4 * load.failing else "once" if kind < load.failing else "never"
        key = f"key {dice.randrange(load.keys)}" if may_have_key and dice.random() < load.keyed else None
        queue = f"queue {dice.randrange(load.queues)}" if dice.random() < load.queued else None
        is_long = dice.random() < (load.long / 4 if queue is not None else load.long)
        seconds = dice.uniform(0.5, load.longest) if is_long else dice.uniform(0.0, load.short)
        task, token = (
            "work" if dice.random() >= load.in_thread else "work_in_thread",
            f"{self._name}-{self._count}",
        )
        if dice.random() < load.limited:
            task, token, seconds = "work_limited", token + LIMITED, dice.uniform(0.1, 0.4)
        if load.wide and dice.random() < load.wide:
            queue, seconds = f"{WIDE}{dice.randrange(WIDE_QUEUES)}", dice.uniform(0.1, 0.4)
            task = "work_wide" if task != "work_limited" else task
        run_at: timedelta | None = None
        if dice.random() < load.later:
            run_at = timedelta(seconds=dice.uniform(0, 0.5))
        elif dice.random() < load.overdue:
            run_at = timedelta(seconds=-dice.uniform(*OVERDUE))
        if queue is None and task == "work" and dice.random() < load.blocking:
            task, seconds = BLOCKING, dice.uniform(*BLOCKS)
        return JobSpec(
            task,
            {"token": token, "queue": queue, "fails": fails, "seconds": seconds},
            queue_name=queue,
            job_key=key,
            job_key_mode=dice.choice(("replace", "preserve_run_at")) if key is not None else None,
            run_at=run_at,
            max_attempts=dice.choice((1, 2)) if fails == "always" else None,
            keep=True if dice.random() < load.kept else None,
        )


async def note_jobs(connection: Any, specs: list[JobSpec], jobs: list[Any]) -> None:
    """Note what was added, in the same transaction."""
    await connection.execute(NOTE, *_columns(specs, jobs))


def _columns(specs: list[JobSpec], jobs: list[Any]) -> list[list[Any]]:
    payloads: list[Any] = [spec.payload for spec in specs]
    return [
        [payload["token"] for payload in payloads],
        [job.id for job in jobs],
        [spec.job_key for spec in specs],
        [spec.queue_name for spec in specs],
        [payload["fails"] for payload in payloads],
        [spec.max_attempts or 25 for spec in specs],
        [bool(spec.keep) for spec in specs],
    ]


async def read_added(connection: asyncpg.Connection) -> list[Added]:
    """What was committed."""
    rows = await connection.fetch(
        "select number, token, job_id, key, queue, fails, max_attempts, kept, "
        "extract(epoch from at)::float8 as at from chaos_added order by number"
    )
    return [Added(**dict(row)) for row in rows]

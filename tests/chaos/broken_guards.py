"""Guards that are broken on purpose, from outside; the product has no switch for any of it.

It is done by triggers in the test's database, by a process that changes the tables, or by workers without
recovery.
"""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import msgspec

from chaos.adders import Load
from chaos.broken_holds import WAITS_COUNT
from chaos.plan import Action
from chaos.run import Interfere
from support.working import SCHEMA

TRIGGER = """
create function chaos_break() returns trigger language plpgsql as $$ begin {body} end $$;
create trigger chaos_break {when} on {schema}.{table} for each row execute function chaos_break();
"""
JOBS, QUEUES, HISTORY = "_private_jobs", "_private_job_queues", "_private_py_history"
HOLDS, PAUSES = "_private_py_limit_holds", "_private_py_pauses"
USUAL = Load(failing=0.0, pause=0.03, longest=1.0)
KILL_ONE = (Action(at=1.5, kind="kill", slot=0),)


class Guard(msgspec.Struct, frozen=True, kw_only=True):
    """One way to break something, and the rule that must find it."""

    name: str
    breaks: str
    interfere: Interfere
    actions: tuple[Action, ...] = ()
    options: dict[str, Any] = {}
    load: Load = USUAL
    seconds: float = 3.0
    broken: str = ""
    """The guard that is removed from the worker processes; empty: none."""


def trigger(when: str, table: str, body: str) -> Interfere:
    """Makes the database itself do the wrong thing."""

    async def install(url: str, over: asyncio.Event) -> None:
        connection = await asyncpg.connect(url)
        try:
            await connection.execute(TRIGGER.format(when=when, table=table, body=body, schema=SCHEMA))
        finally:
            await connection.close()

    return install


def again_and_again(statement: str) -> Interfere:
    """Done every few milliseconds."""

    async def meddle(url: str, over: asyncio.Event) -> None:
        connection = await asyncpg.connect(url)
        try:
            while not over.is_set():
                await connection.execute(statement)
                await asyncio.sleep(0.1)
        finally:
            await connection.close()

    return meddle


async def nothing(url: str, over: asyncio.Event) -> None:
    """Leave everything as it is."""


GUARDS = [
    Guard(
        name="an add is dropped",
        breaks="every_committed_job_ran_or_waits",
        interfere=trigger(
            "after insert",
            JOBS,
            f"delete from {SCHEMA}.{JOBS} where id = new.id and id % 7 = 0; return null;",
        ),
    ),
    Guard(
        name="the lock of a queue is not taken",
        breaks="no_queue_ran_two_jobs_at_once",
        interfere=trigger(
            "before update", QUEUES, "new.locked_by := null; new.locked_at := null; return new;"
        ),
    ),
    Guard(
        name="nothing is counted by a limit",
        breaks="no_limit_was_exceeded",
        interfere=trigger("before insert", HOLDS, "return null;"),
    ),
    Guard(
        name="the lock of a track is not taken",
        breaks="no_queue_concurrency_was_exceeded",
        interfere=trigger(
            "before update", QUEUES, "new.locked_by := null; new.locked_at := null; return new;"
        ),
        load=Load(failing=0.0, pause=0.03, longest=1.0, wide=0.5),
    ),
    Guard(
        name="a paused queue is freed",
        breaks="nothing_paused_was_taken",
        interfere=again_and_again(
            f"delete from {SCHEMA}._private_py_queue_holds; "
            f"update {SCHEMA}.{QUEUES} set locked_by = null, locked_at = null where locked_by = 'py:hold'; "
            "select pg_notify('worker:py', '{\"pauses\":1}')"
        ),
        load=Load(failing=0.0, pause=0.03, longest=1.0, wide=0.3, pauses=("queue",)),
        seconds=5.0,
    ),
    Guard(
        name="workers do not see that a task is paused",
        breaks="nothing_paused_was_started",
        interfere=trigger("after insert or update", PAUSES, f"delete from {SCHEMA}.{PAUSES}; return null;"),
        load=Load(failing=0.0, pause=0.03, longest=1.0, limited=0.3, pauses=("task",)),
        seconds=7.0,
    ),
    Guard(
        name="a sweep takes the jobs of the living",
        breaks="no_job_ran_twice",
        interfere=again_and_again(
            f"update {SCHEMA}.{JOBS} set locked_by = null, locked_at = null, attempts = attempts - 1 "
            "where locked_at < now() - interval '0.3 seconds'"
        ),
    ),
    Guard(
        name="a completion is not written",
        breaks="what_ended_was_written",
        interfere=trigger("before delete", JOBS, "if old.id % 5 = 0 then return null; end if; return old;"),
    ),
    Guard(
        name="attempts are not counted",
        breaks="attempts_count_what_happened",
        interfere=trigger("before update", JOBS, "new.attempts := old.attempts; return new;"),
    ),
    Guard(
        name="the attempt that a death cut short counts",
        breaks="attempts_count_what_happened",
        interfere=trigger(
            "before update", JOBS, "new.attempts := greatest(new.attempts, old.attempts); return new;"
        ),
        actions=KILL_ONE,
    ),
    Guard(
        name="a key keeps its old payload",
        breaks="no_key_fell_back",
        interfere=trigger(
            "before update",
            JOBS,
            "if new.revision > old.revision then new.payload := old.payload; end if; return new;",
        ),
    ),
    Guard(
        name="orphaned jobs are not recovered",
        breaks="nothing_is_locked_by_the_dead",
        interfere=nothing,
        actions=KILL_ONE,
        options={"recovery": False},
    ),
    Guard(
        name="a queue is not freed",
        breaks="no_queue_is_held_for_nothing",
        interfere=trigger(
            "before update", QUEUES, "if new.locked_by is null then return null; end if; return new;"
        ),
    ),
    Guard(
        name="jobs that are due are not found",
        breaks="nothing_due_is_left_waiting",
        interfere=trigger(
            "before update",
            JOBS,
            "if new.locked_by is not null and new.id % 5 = 0 then return null; end if; return new;",
        ),
    ),
    Guard(
        name="a fetch that waited for a lock hides old jobs",
        breaks="no_ready_job_waits_beside_a_free_slot",
        interfere=nothing,
        actions=(
            Action(at=1.5, kind="lock", slot=0, lasts=1.0),
            *(Action(at=3.0 + n / 2, kind="unlock", slot=0, lasts=0.2) for n in range(4)),
        ),
        load=msgspec.structs.replace(USUAL, overdue=0.3),
        seconds=6.0,
        broken=WAITS_COUNT,
    ),
    Guard(
        name="a ready job cannot be taken",
        breaks="no_ready_job_waits_beside_a_free_slot",
        interfere=trigger(
            "before update",
            JOBS,
            "if new.locked_by is not null and new.id % 5 = 0 then return null; end if; return new;",
        ),
    ),
    Guard(
        name="an end is not kept",
        breaks="every_kept_job_is_there",
        interfere=trigger(
            "before insert", HISTORY, "if new.job_id % 5 = 0 then return null; end if; return new;"
        ),
    ),
    Guard(
        name="an end is kept twice",
        breaks="no_end_without_its_job",
        interfere=again_and_again(
            f"insert into {SCHEMA}.{HISTORY} select * from {SCHEMA}.{HISTORY} order by finished_at limit 1"
        ),
    ),
    Guard(
        name="an uncommitted job runs",
        breaks="nothing_uncommitted_ran",
        interfere=again_and_again(
            f"select {SCHEMA}.add_job('work', json_build_object('token', 'nobody''s', 'queue', null, "
            "'fails', 'never', 'seconds', 0))"
        ),
    ),
]

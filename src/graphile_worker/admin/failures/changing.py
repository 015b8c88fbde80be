"""What can be done about an error group: an action on all of its jobs; hiding it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal

import msgspec

from ...database.sql import load
from ...history.audit import MAX_KEPT, Actor, record
from ...history.error_groups import ErrorGroup
from ...values.text import count
from ..answers import Problem
from ..database import ERRORS, Database, own_tables
from ..jobs.changing import ActionValues, check_values
from ..live.hub import Hub
from ..operations import queries
from ..operations.choosing import Chosen, Position, choose
from ..operations.queries import CAREFUL_RATE, ChangeOfMany, DryRun, Example, Operation
from ..security.redact import Redactor
from .counts import GroupCount, count_errors
from .queries import READ_JOBS, active_operation, find_group

MUTED_FOR = timedelta(days=1)
"""How long a group is muted if the application has no version."""


class GroupRequest(ChangeOfMany, frozen=True, kw_only=True):
    """An action on all jobs of a group."""

    action: Literal["carefully", "retry", "reschedule", "give_up", "delete"]
    """`carefully` retries some jobs first, and then the others, until one fails."""
    canary: Annotated[int, msgspec.Meta(ge=1, le=100)] = 1
    """carefully: how many jobs to retry first."""

    @property
    def is_careful(self) -> bool:
        return self.action == "carefully"

    @property
    def change(self) -> Literal["retry", "reschedule", "give_up", "delete"]:
        """What is done to each job."""
        return "retry" if self.action == "carefully" else self.action


class GroupQuestion(GroupRequest, frozen=True, kw_only=True):
    """The same, before it is confirmed."""

    action: Literal["carefully", "retry", "reschedule", "give_up", "delete"] = "carefully"


class MuteRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Hide a group until it occurs in a newer version; without versions, for a day."""

    reason: Annotated[str, msgspec.Meta(max_length=500)] = ""


class Muted(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a group is hidden."""

    fingerprint: str
    is_muted: bool
    version: str | None = None
    until: datetime | None = None


async def dry_run(hub: Hub, fingerprint: str, request: GroupRequest, environment: str) -> DryRun:
    """How many jobs an action on the group would change: as many as its page says."""
    database, start = hub.database, Position(0, 2**63 - 1)
    async with database.read() as connection:
        if not (await own_tables(connection, database.schema)) >= ERRORS:
            raise queries.MISSING
        group = await find_group(connection, database.schema, fingerprint)
        jobs = (await count_errors(hub, connection, max_age=0)).of(group)
        chosen = Chosen(fingerprint=fingerprint)
        choice = await choose(
            connection, database.schema, chosen, request.change, start, queries.EXAMPLES, read=READ_JOBS
        )
        rows = await connection.fetch(load("admin/current_states", database.schema), choice.ids)
    return DryRun(
        action=request.change,
        target=target_of(group),
        count=jobs.all,
        examples=[Example(row["id"], group.task_identifier, row["state"]) for row in rows],
        seconds=queries.seconds_for(jobs.all.value, request.rate),
        needs_confirmation=queries.needs_confirmation(jobs.all, environment),
        can_undo=jobs.all.value <= MAX_KEPT,
        note=_note(jobs),
    )


def _note(jobs: GroupCount) -> str:
    """What the count is made of, and what cannot be found."""
    sentences = []
    if jobs.failed.value and jobs.retrying.value:
        sentences.append(f"{jobs.failed} have failed permanently, {jobs.retrying} wait for another attempt.")
    if jobs.all.kind != "exact":
        sentences.append("The number is an estimate; all jobs of the group are found.")
    if jobs.unclear:
        sentences.append(
            f"{count(jobs.unclear, 'more job')} may be of this group, and cannot be told apart from those of "
            "another one: their errors look alike after redaction, and were not kept. They stay as they are."
        )
    return " ".join(sentences)


def target_of(group: ErrorGroup) -> str:
    kind = group.error_type or Redactor().text(group.message)[:60]
    return f"jobs of {group.task_identifier} with {kind} ({group.fingerprint})"


async def change_group(
    hub: Hub, actor: Actor, fingerprint: str, request: GroupRequest, environment: str
) -> Operation:
    """An action on all jobs of the group.

    A careful one retries some of them first; when they have succeeded, the others, until one fails.
    """
    database = hub.database
    check_values(request.change, request)
    await queries.require_tables(database)
    found = await dry_run(hub, fingerprint, request, environment)
    queries.check_confirmation(found, request.number)
    if not request.is_careful:
        return await queries.begin(
            database, actor, Chosen(fingerprint=fingerprint), found, request, rate=request.rate
        )
    async with database.read() as connection:
        active = await active_operation(connection, database.schema, fingerprint)
    if active is not None:
        raise Problem(409, "An operation on this group is under way", f"It is operation {active}.")
    return await queries.begin(
        database, actor, Chosen(fingerprint=fingerprint), found, ActionValues(),
        rate=request.rate or CAREFUL_RATE, stage="canary", more={"canary": request.canary},
    )  # fmt: skip


async def mute(database: Database, actor: Actor, fingerprint: str, reason: str) -> Muted:
    """Hide the group until it occurs in another version of the application; without versions, for a day."""
    await queries.require_tables(database)
    async with database.write() as connection:
        group = await find_group(connection, database.schema, fingerprint)
        until = None if group.last_version else datetime.now(UTC) + MUTED_FOR
        await connection.execute(
            load("admin/mute_error", database.schema),
            fingerprint, group.last_version, until, actor.name, reason,
        )  # fmt: skip
        await record(
            connection, database.schema, actor, "mute_error", target=target_of(group),
            details={"reason": reason, "version": group.last_version},
        )  # fmt: skip
    return Muted(fingerprint=fingerprint, is_muted=True, version=group.last_version, until=until)


async def unmute(database: Database, actor: Actor, fingerprint: str) -> Muted:
    """Show the group again."""
    await queries.require_tables(database)
    async with database.write() as connection:
        group = await find_group(connection, database.schema, fingerprint)
        await connection.fetchval(load("admin/unmute_error", database.schema), fingerprint)
        await record(connection, database.schema, actor, "unmute_error", target=target_of(group))
    return Muted(fingerprint=fingerprint, is_muted=False)

"""LayoutContext: what the frame shows around every page, shared by all pages for some seconds."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Literal
from urllib.parse import urlencode

from ...database.connections.connection import Row
from ...database.connections.errors import explained
from ...database.sql import load
from ...diagnostics.explanation.values import title, words
from ...values.job import Pause
from ..answers import Count
from ..database import ERRORS, WORKERS, Database
from ..live.hub import DOCTOR, Hub
from ..security.identity import Permission
from ..security.redact import redacted_pauses

logger = logging.getLogger("graphile_worker.admin")

MAX_AGE = 30.0
"""Seconds for which all pages share what was found."""
FINDINGS_FOR = 900.0
"""Seconds for which the number beside Doctor is shown: no other page examines the database."""
RECENT = timedelta(hours=1)
"""Error groups that occurred since then are counted beside Failures."""
MOST_GROUPS = 99
MOST_BANNERS = 3
OPERATIONS = frozenset({"_private_py_operations", "_private_py_audit"})
QUEUES: Permission = "queues.pause"
TASKS: Permission = "tasks.pause"


@dataclass(frozen=True, slots=True, kw_only=True)
class Banner:
    """A line above the page: something is paused or under way, no worker is alive, the database is down."""

    text: str
    tone: Literal["info", "warn", "bad"] = "warn"
    here: str = ""
    """The entry of the navigation whose pages say the same by themselves."""
    until: datetime | None = None
    """Follows the text, as a time of the viewer's zone."""
    rest: str = ""
    """Follows the time."""
    action: str = ""
    """The label of a link."""
    path: str = ""
    """Where the link leads."""
    permission: Permission | None = None
    """For `post`; those without it get the link only."""
    post: str = ""
    """The path of a form that ends it, with a button Resume."""
    name: str = ""
    """The field `name` of that form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutContext:
    """Counts beside the navigation, banners, and what the dashboard itself costs."""

    failures: Count | None = None
    """Error groups that occurred lately; None if there are none."""
    findings: int | None = None
    """Errors and warnings of the doctor, if it was asked lately and found any."""
    banners: tuple[Banner, ...] = ()
    worker_names: Mapping[str, str] = field(default_factory=dict)
    """What pages call a pool, by its id: host and process id."""
    statements_per_minute: float | None = None
    database_seconds_per_minute: float | None = None


async def layout_context(hub: Hub) -> LayoutContext:
    """What the frame shows around a page; a problem of its own never becomes one of the page."""
    cost = hub.database.meter.cost
    found: LayoutContext
    try:
        found = await hub.shared("frame", lambda: _gather(hub.database), max_age=MAX_AGE, topic="banners")
    except Exception as error:
        logger.debug("nothing around the page: %s", explained(error))
        found = LayoutContext()
    return replace(
        found,
        findings=_findings(hub),
        banners=(*_alarms(hub), *found.banners),
        statements_per_minute=cost.statements,
        database_seconds_per_minute=cost.milliseconds / 1000,
    )


async def _gather(database: Database) -> LayoutContext:
    now = datetime.now(UTC)
    async with database.read() as connection:
        tables = await database.own_tables(connection)
        pauses = await database.pauses(connection)
        groups = (
            await database.utils.history.list_error_groups(
                since=now - RECENT, limit=MOST_GROUPS + 1, connection=connection
            )
            if tables >= ERRORS
            else None
        )
        operations = (
            await connection.fetch(load("admin/active_operations", database.schema))
            if tables >= OPERATIONS
            else []
        )
        pools = (
            await connection.fetch(load("admin/hosts_of_pools", database.schema)) if WORKERS in tables else []
        )
    return LayoutContext(
        failures=_counted(len(groups)) if groups else None,
        banners=(
            *_under_way(operations),
            *(_paused(each) for each in redacted_pauses(pauses[:MOST_BANNERS])),
        ),
        worker_names={pool["id"]: f"{pool['host']} · {pool['pid']}" for pool in pools if pool["host"]},
    )


def _counted(groups: int) -> Count:
    return Count(groups) if groups <= MOST_GROUPS else Count(MOST_GROUPS, "at_least")


def _findings(hub: Hub) -> int | None:
    report = hub.known(DOCTOR, max_age=FINDINGS_FOR)
    return None if report is None else (report.errors + report.warnings) or None


def _alarms(hub: Hub) -> Iterator[Banner]:
    samples = hub.sampler.samples
    if hub.down_since is not None:
        text = "The database does not answer. What you see is what it was before."
        yield Banner(text=text, tone="bad")
    elif samples and samples[-1].workers == 0 and samples[-1].ready.value:
        text = title(f"{words('no_worker', python='Python ')}, and jobs are ready to run.")
        yield Banner(text=text, tone="bad", action="Workers", path="/workers")


def _under_way(operations: Sequence[Row]) -> Iterator[Banner]:
    """A line about the changes to many jobs that have not ended."""
    if len(operations) > 1:
        text = f"{len(operations)} operations are under way."
        yield Banner(text=text, tone="info", here="operations", action="Operations", path="/operations")
    for row in operations if len(operations) == 1 else ():
        done, of = row["changed"] + row["skipped"], Count(row["expected"], row["expected_kind"])
        action = row["action"].replace("_", " ")
        text = f"Operation {row['id']} is under way: {action}, {done:,} of {of} jobs."
        path = f"/operations/{row['id']}"
        yield Banner(text=text, tone="info", here="operations", action="Open", path=path)


def _paused(pause: Pause) -> Banner:
    what = pause.what[0].upper() + pause.what[1:]
    because = f": {pause.reason}" if pause.reason else ""
    query = urlencode({"name": pause.name or ""})
    if pause.queue_name is not None:
        path, post, permission = f"/queue?{query}", "/queues/resume", QUEUES
    else:
        path, post, permission = f"/task?{query}" if pause.name else "/tasks", "/tasks/resume", TASKS
    return Banner(
        text=f"{what} is paused", until=pause.until, rest=because, action="Details", path=path, post=post,
        permission=permission, name=pause.name or "",
    )  # fmt: skip

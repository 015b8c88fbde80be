"""Judges the way to the server and the server itself: version, clock, pooler, LISTEN, settings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile

from ..migrate.revisions import OLDEST_SERVER_VERSION
from ..schema_name import SchemaName
from .facts import ServerFacts
from .finding import Finding, Thresholds, some, well


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionFacts:
    """What trying out the connection showed."""

    clock_difference: float
    """Seconds that the server's clock is ahead of ours."""
    clock_uncertainty: float
    """How far off that may be, because the answer took its time."""
    has_pooler: bool
    """Whether somebody between us and the server answers in its name."""
    switches_sessions: bool
    """Whether two statements of one connection can end up in different sessions of the server."""
    listen_seconds: float | None
    """How long a notification took to arrive; None if it did not."""


def check_server(server: ServerFacts) -> Iterator[Finding]:
    """The server's version, and whether it takes writes."""
    if server.server_version < OLDEST_SERVER_VERSION:
        yield Finding(
            "server", "error", f"PostgreSQL {server.version} is too old",
            "The tables need generated columns, which PostgreSQL has since version 12.",
            "Upgrade the server to PostgreSQL 12 or later.",
        )  # fmt: skip
    else:
        yield well("server", f"PostgreSQL {server.version}, database {server.database}, role {server.role}")
    if server.is_standby:
        yield Finding(
            "server", "error", "the server is a standby",
            "A standby takes no writes: jobs can be neither added nor run there.",
            "Connect to the primary; with several hosts in the connection string, "
            "add target_session_attrs=read-write.",
        )  # fmt: skip
    elif server.is_read_only:
        yield Finding(
            "server", "error", "default_transaction_read_only is on for this session",
            "Every statement that would change something fails, so no job can be added or run.",
            f"alter role {server.role} reset default_transaction_read_only, or look for it in the server's "
            "configuration and the connection string.",
        )  # fmt: skip


def check_settings(server: ServerFacts) -> Iterator[Finding]:
    """Settings of the server that do a queue harm."""
    found = list(_bad_settings(server))
    yield from found or [well("settings", "no setting of the server stands in the way")]


def _bad_settings(server: ServerFacts) -> Iterator[Finding]:
    if not server.autovacuum or not server.track_counts:
        name = "autovacuum" if not server.autovacuum else "track_counts"
        yield Finding(
            "settings", "warning", f"{name} is off",
            "Finished jobs leave dead rows behind. Nobody removes them, and fetching gets slower and slower.",
            f"alter system set {name} = on; select pg_reload_conf();",
        )  # fmt: skip
    if server.idle_session_timeout:
        yield Finding(
            "settings", "warning", f"idle_session_timeout is {server.idle_session_timeout:g} seconds",
            "The server ends sessions that are idle. A worker's session that listens for new jobs is idle by "
            "nature: it is lost and made anew again and again.",
            f"alter role {server.role} set idle_session_timeout = 0;",
        )  # fmt: skip
    if server.isolation != "read committed":
        yield Finding(
            "settings", "warning", f"default_transaction_isolation is {server.isolation}",
            "Workers that fetch at the same time make each other's statements fail, which are then repeated.",
            f"alter role {server.role} set default_transaction_isolation = 'read committed';",
        )  # fmt: skip
    for name, is_on in (("fsync", server.fsync), ("full_page_writes", server.full_page_writes)):
        if not is_on:
            yield Finding(
                "settings", "warning", f"{name} is off",
                "If the machine crashes, the whole database may be lost, jobs included. That is fine for "
                "tests.",
                f"alter system set {name} = on; select pg_reload_conf();",
            )  # fmt: skip
    if server.connections >= server.max_connections * 0.9:
        yield Finding(
            "settings", "warning",
            f"{server.connections} of {server.max_connections} connections are in use",
            "When none is left, workers and applications cannot connect.",
            "Lower max_pool_size or the number of processes, put a pooler in front of the applications, or "
            "raise max_connections.",
        )  # fmt: skip
    before = list(takewhile(lambda name: name != "pg_catalog", server.schemas))
    if before:
        rest = [SchemaName(name).quoted for name in server.schemas if name != "pg_catalog"]
        yield Finding(
            "settings", "warning", f"search_path has {some(before)} before pg_catalog",
            "A role that may create functions or operators there can have them called in place of "
            "PostgreSQL's own, with the rights of every role that connects. The sessions in which a worker "
            "fetches and writes are protected; others, and everything else that uses this database, are not.",
            f"Where it is set, for the role or the database, leave pg_catalog out, which is searched first "
            f"unless it is named: alter role {server.role} set search_path = {', '.join(rest)};",
        )  # fmt: skip
    if server.notification_queue > 0.5:
        yield Finding(
            "settings", "warning", f"the notification queue is {server.notification_queue:.0%} full",
            "A session that listens has been inside a transaction for long. When the queue is full, "
            "adding jobs fails.",
            "Find and end that session: see the findings about transactions, or pg_stat_activity.",
        )  # fmt: skip


def check_clock(facts: ConnectionFacts, thresholds: Thresholds) -> Finding:
    """Whether this machine and the server agree on the time."""
    off = abs(facts.clock_difference)
    certain = max(0.0, off - facts.clock_uncertainty)
    direction = "ahead of" if facts.clock_difference > 0 else "behind"
    summary = f"the server's clock is {off:.1f} seconds {direction} this machine's"
    if certain < thresholds.clock_warning:
        return well("clock", "this machine and the server agree on the time")
    return Finding(
        "clock", "error" if certain >= thresholds.clock_error else "warning", summary,
        "Recurring jobs are added by the worker's clock, jobs become due by the server's. With "
        "use_local_time, jobs also run too early or too late by that much.",
        "Switch time synchronisation on (NTP, chrony) on both machines.",
    )  # fmt: skip


def check_pooler(facts: ConnectionFacts, *, prepared_statements: bool) -> Finding:
    """Whether there is a pooler in between, and whether the options fit it."""
    if facts.switches_sessions:
        if prepared_statements:
            return Finding(
                "pooler", "error", "there is a pooler in transaction mode in between",
                "Statements of one connection go to different sessions of the server. Prepared statements "
                "and settings of a session get lost, and workers fail with errors about them.",
                "Connect workers to the server itself or to a pooler in session mode; or set "
                "prepared_statements = false (--no-prepared-statements) and live with polling.",
            )  # fmt: skip
        return Finding(
            "pooler", "warning", "there is a pooler in transaction mode in between",
            "It works because prepared statements are off, but LISTEN does not: jobs are found by "
            "polling, and a dead worker is noticed by its heartbeat only.",
            "Connect workers to the server itself or to a pooler in session mode; applications that only add "
            "jobs may stay.",
        )  # fmt: skip
    if facts.has_pooler:
        return Finding(
            "pooler", "info", "there is a pooler in between, in session mode as it seems",
            "Each connection keeps its own session of the server, so everything works.",
            "Nothing, as long as it stays in session mode for workers.",
        )  # fmt: skip
    return well("pooler", "the connection leads to the server itself")


def check_listen(facts: ConnectionFacts, poll_interval: float) -> Finding:
    """Whether notifications arrive."""
    if facts.listen_seconds is not None:
        return well("listen", f"a notification arrived after {facts.listen_seconds * 1000:.0f} ms")
    return Finding(
        "listen", "warning", "LISTEN does not work here",
        f"Workers hear nothing of new jobs and find them only when they look, every {poll_interval:g} "
        "seconds.",
        "Connect workers to the server itself or to a pooler in session mode.",
    )  # fmt: skip

"""Checks of the connection and the server, with their probes: version, clock, pooler, LISTEN, settings."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from ..database.connections.connection import Connection
from ..database.connections.errors import sqlstate_of
from ..database.migrations.state import OLDEST_SERVER_VERSION
from ..database.statements.control import ping
from ..values.clock import Clock
from ..values.schema_name import SchemaName
from ..values.text import duration
from .facts import Moment, ServerFacts
from .finding import Finding, Thresholds, some, well


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionFacts:
    """Results of probing the connection."""

    clock_difference: float
    """Seconds that the server's clock is ahead of ours."""
    clock_uncertainty: float
    """Uncertainty of the difference: half the round trip."""
    has_pooler: bool
    """Whether a pooler is between us and the server."""
    switches_sessions: bool
    """Whether statements of one connection can run in different sessions of the server."""
    listen_seconds: float | None
    """Latency of a notification; None if none arrived."""


def check_server(server: ServerFacts) -> Iterator[Finding]:
    """The server's version, and whether it accepts writes."""
    if server.server_version < OLDEST_SERVER_VERSION:
        yield Finding(
            "server", "error", f"PostgreSQL {server.version} is too old",
            "The tables use generated columns, which need PostgreSQL 12.",
            "Upgrade the server to PostgreSQL 12 or later.",
        )  # fmt: skip
    else:
        yield well("server", f"PostgreSQL {server.version}, database {server.database}, role {server.role}")
    if server.is_standby:
        yield Finding(
            "server", "error", "the server is a standby",
            "A standby accepts no writes: no job can be added or run.",
            "Connect to the primary; with several hosts in the connection string, "
            "add target_session_attrs=read-write.",
        )  # fmt: skip
    elif server.is_read_only:
        yield Finding(
            "server", "error", "default_transaction_read_only is on for this session",
            "Every write fails, so no job can be added or run.",
            f"alter role {server.role} reset default_transaction_read_only; or check the server's "
            "configuration and the connection string.",
        )  # fmt: skip


def check_settings(server: ServerFacts) -> Iterator[Finding]:
    """Server settings that harm a queue."""
    found = list(_bad_settings(server))
    yield from found or [well("settings", "no harmful server setting")]


def _bad_settings(server: ServerFacts) -> Iterator[Finding]:
    if not server.autovacuum or not server.track_counts:
        name = "autovacuum" if not server.autovacuum else "track_counts"
        yield Finding(
            "settings", "warning", f"{name} is off",
            "Finished jobs leave dead rows. Without autovacuum they accumulate, and fetches get ever slower.",
            f"alter system set {name} = on; select pg_reload_conf();",
        )  # fmt: skip
    if server.idle_session_timeout:
        yield Finding(
            "settings", "warning", f"idle_session_timeout is {duration(server.idle_session_timeout)}",
            "The server ends idle sessions. The session in which a worker listens for new jobs is mostly "
            "idle: it is closed and reopened again and again.",
            f"alter role {server.role} set idle_session_timeout = 0;",
        )  # fmt: skip
    if server.isolation != "read committed":
        yield Finding(
            "settings", "warning", f"default_transaction_isolation is {server.isolation}",
            "Concurrent fetches make each other fail and have to be retried.",
            f"alter role {server.role} set default_transaction_isolation = 'read committed';",
        )  # fmt: skip
    for name, is_on in (("fsync", server.fsync), ("full_page_writes", server.full_page_writes)):
        if not is_on:
            yield Finding(
                "settings", "warning", f"{name} is off",
                "A crash of the machine can destroy the whole database. Acceptable for tests only.",
                f"alter system set {name} = on; select pg_reload_conf();",
            )  # fmt: skip
    if server.connections >= server.max_connections * 0.9:
        yield Finding(
            "settings", "warning",
            f"{server.connections} of {server.max_connections} connections are in use",
            "Once none is left, workers and applications cannot connect.",
            "Lower max_pool_size or the number of processes, put a pooler in front of the applications, or "
            "raise max_connections.",
        )  # fmt: skip
    before = list(takewhile(lambda name: name != "pg_catalog", server.schemas))
    if before:
        rest = [SchemaName(name).quoted for name in server.schemas if name != "pg_catalog"]
        yield Finding(
            "settings", "warning", f"search_path has {some(before)} before pg_catalog",
            "A role that may create functions or operators there can override PostgreSQL's own, and they run "
            "with the permissions of every role that connects. A worker's own sessions are protected; all "
            "other sessions are not.",
            f"Remove pg_catalog from search_path where it is set, for the role or the database; it is then "
            f"searched first: alter role {server.role} set search_path = {', '.join(rest)};",
        )  # fmt: skip
    if server.notification_queue > 0.5:
        yield Finding(
            "settings", "warning", f"the notification queue is {server.notification_queue:.0%} full",
            "A listening session has been in a transaction for a long time. When the queue is full, adding "
            "jobs fails.",
            "Find and end that session: see the findings about transactions, or pg_stat_activity.",
        )  # fmt: skip


def check_clock(facts: ConnectionFacts, thresholds: Thresholds) -> Finding:
    """Clock difference between this machine and the server."""
    off = abs(facts.clock_difference)
    certain = max(0.0, off - facts.clock_uncertainty)
    direction = "ahead of" if facts.clock_difference > 0 else "behind"
    summary = f"the server's clock is {duration(off)} {direction} this machine's"
    if certain < thresholds.clock_warning:
        return well("clock", "this machine and the server agree on the time")
    return Finding(
        "clock", "error" if certain >= thresholds.clock_error else "warning", summary,
        "Recurring jobs are added by the worker's clock; jobs become due by the server's. With "
        "use_local_time, jobs also run too early or too late by the difference.",
        "Enable time synchronisation (NTP, chrony) on both machines.",
    )  # fmt: skip


def check_pooler(facts: ConnectionFacts, *, prepared_statements: bool) -> Finding:
    """Whether there is a pooler, and whether the options suit it."""
    if facts.switches_sessions:
        if prepared_statements:
            return Finding(
                "pooler", "error", "connected through a pooler in transaction mode",
                "Statements of one connection run in different sessions of the server, so prepared "
                "statements and session settings get lost and workers fail.",
                "Connect workers directly to the server or through a pooler in session mode; or set "
                "prepared_statements = false (--no-prepared-statements) and rely on polling.",
            )  # fmt: skip
        return Finding(
            "pooler", "warning", "connected through a pooler in transaction mode",
            "Prepared statements are off, so jobs run. But LISTEN does not work: jobs are found by polling, "
            "and dead workers are detected more slowly.",
            "Connect workers directly to the server or through a pooler in session mode. Applications that "
            "only add jobs can stay.",
        )  # fmt: skip
    if facts.has_pooler:
        return Finding(
            "pooler", "info", "connected through a pooler, apparently in session mode",
            "Each connection keeps its session of the server, so everything works.",
            "Nothing to do, as long as workers stay in session mode.",
        )  # fmt: skip
    return well("pooler", "connected directly to the server")


def check_listen(facts: ConnectionFacts, poll_interval: float) -> Finding:
    if facts.listen_seconds is not None:
        return well("listen", f"a notification arrived after {duration(facts.listen_seconds)}")
    return Finding(
        "listen", "warning", "LISTEN does not work here",
        f"Workers get no notifications and find new jobs only by polling, every {poll_interval:g} seconds.",
        "Connect workers directly to the server or through a pooler in session mode.",
    )  # fmt: skip


ATTEMPTS = 3
LISTEN_TIMEOUT = 3.0


async def probe(connection: Connection, other: Connection, clock: Clock) -> ConnectionFacts:
    """Run all probes on two connections to the same server."""
    difference, uncertainty = await clock_difference(connection, clock)
    switches = await switches_sessions(connection, other)
    pid = (await Moment.load_one(connection)).pid
    return ConnectionFacts(
        clock_difference=difference,
        clock_uncertainty=uncertainty,
        # A pooler invents the process id that it reports to its clients.
        has_pooler=switches or pid != connection.get_server_pid(),
        switches_sessions=switches,
        listen_seconds=await listen_seconds(connection, other),
    )


async def clock_difference(connection: Connection, clock: Clock) -> tuple[float, float]:
    """Seconds that the server's clock is ahead, and the uncertainty; from the fastest of several attempts."""
    best: tuple[float, float] | None = None
    for _ in range(ATTEMPTS):
        before, asked = clock.now().timestamp(), clock.monotonic()
        at = (await Moment.load_one(connection)).at
        half = (clock.monotonic() - asked) / 2
        if best is None or half < best[1]:
            best = (at - (before + half), half)
    return best or (0.0, 0.0)


async def switches_sessions(connection: Connection, other: Connection) -> bool:
    """Whether a connection gets another session of the server while its previous one is in use."""
    before = (await Moment.load_one(connection)).pid
    # A pooler in transaction mode assigns the session that was released last. So the other connection gets
    # ours for its transaction, and we get a different one.
    async with other.transaction():
        await Moment.load_one(other)
        after = (await Moment.load_one(connection)).pid
    return before != after


async def listen_seconds(connection: Connection, other: Connection) -> float | None:
    """Latency of a notification; None if it does not arrive."""
    loop = asyncio.get_running_loop()
    received = asyncio.Event()
    channel = f"doctor:{os.urandom(8).hex()}"

    def receive(*_: Any) -> None:
        received.set()

    try:
        await connection.add_listener(channel, receive)
        began = loop.time()
        await ping(other, channel)
        async with asyncio.timeout(LISTEN_TIMEOUT):
            await received.wait()
        return loop.time() - began
    except TimeoutError:
        return None
    except Exception as error:
        if sqlstate_of(error) is None:
            raise
        return None  # some poolers refuse LISTEN
    finally:
        with suppress(Exception):
            await connection.remove_listener(channel, receive)

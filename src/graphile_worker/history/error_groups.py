"""Groups of errors: how often each kind of error occurred, since when, and in which job last.

The kind is a fingerprint: the same for errors of one type from one place with alike messages.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from ..database.connections.connection import Connection, Row
from ..database.connections.encoding import fit_to_server
from ..database.connections.statement import with_planner_settings
from ..database.sql import load
from ..values.schema_name import SchemaName

MAX_MESSAGE = 500
"""Characters of the message that a group shows."""
READ_ERRORS = 200
"""How many of the latest stored errors are read for those that no worker has counted yet."""


class ErrorGroup(msgspec.Struct, frozen=True):
    """Errors with one fingerprint: of one type, from one place, with alike messages."""

    fingerprint: str
    task_identifier: str
    error_type: str
    message: str
    """Of the latest error."""
    place: str
    """File and function."""
    first_at: datetime
    last_at: datetime
    errors: int
    """Failed attempts."""
    permanent: int
    """How many of them were the last attempt of their job."""
    last_job_id: int
    first_version: str | None
    """The version of the application when it first occurred."""
    last_version: str | None


class CountedErrors(msgspec.Struct):
    """Errors of one fingerprint that a pool has not stored yet."""

    task_id: int
    error_type: str
    message: str
    place: str
    first_at: float
    last_at: float
    errors: int
    permanent: int
    job_id: int


async def write_error_groups(
    connection: Connection,
    schema: SchemaName,
    counted: dict[str, CountedErrors],
    now: float,
    version: str | None,
) -> None:
    """Store what was counted; `now` is by the clock of `first_at` and `last_at`."""
    groups = sorted(counted.items())

    def texts(values: Sequence[str]) -> list[str]:
        return [fit_to_server(connection, value) for value in values]

    await connection.execute(
        load("history/write_error_groups", schema),
        [fingerprint for fingerprint, _ in groups],
        [group.task_id for _, group in groups],
        texts([group.error_type for _, group in groups]),
        texts([group.message for _, group in groups]),
        texts([group.place for _, group in groups]),
        [now - group.first_at for _, group in groups],
        [now - group.last_at for _, group in groups],
        [group.errors for _, group in groups],
        [group.permanent for _, group in groups],
        [group.job_id for _, group in groups],
        version,
    )


async def list_error_groups(
    connection: Connection,
    schema: SchemaName,
    *,
    since: datetime | None = None,
    task_identifier: str | None = None,
    limit: int = 50,
    before: datetime | None = None,
    fingerprint: str | None = None,
) -> list[ErrorGroup]:
    """Groups, the one that occurred last first; with `before`, those that occurred last before that time."""
    async with with_planner_settings(connection, load("history/read_in_order", schema)):
        rows = await connection.fetch(
            load("history/list_error_groups", schema),
            since, task_identifier, limit, before, fingerprint, READ_ERRORS,
        )  # fmt: skip
    return [_group(row) for row in rows]


def _group(row: Row) -> ErrorGroup:
    *values, is_stored, traceback = row
    group = ErrorGroup(*values)
    if not is_stored:
        return group
    message = _own_message(group.error_type, group.message)[:MAX_MESSAGE]
    if row["place"] is None:
        return replace(group, message=message, place=place_in(traceback or ""))
    return replace(group, message=message)


def _own_message(error_type: str, text: str) -> str:
    """The message in a stored error's text, without the type before it and the place after it."""
    headline = text.partition("\n  at ")[0]
    return "" if headline == error_type else headline.removeprefix(f"{error_type}: ")


async def purge_error_groups(
    connection: Connection, schema: SchemaName, *, older_than: float, limit: int
) -> int:
    """Forget groups without an error for this many seconds; returns how many."""
    statement = load("history/purge_error_groups", schema)
    count: int = await connection.fetchval(statement, older_than, limit)
    return count


MAX_FINGERPRINTED = 200
_FRAME = re.compile(r'^\s*\|?\s*File "(.+)", line \d+, in (.+)$', re.MULTILINE)
_LIBRARY = re.compile(r"[/\\](?:site-packages|dist-packages)[/\\]|[/\\]lib[/\\]python3\.\d+[/\\]")
_VARIABLE = re.compile(
    r"""'[^']*'|"[^"]*"|`[^`]*`"""  # quoted values
    r"|\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b"  # UUIDs
    r"|\b0x[0-9a-fA-F]+\b|\b[0-9a-fA-F]*\d[0-9a-fA-F]*\b|\d+"
)


def fingerprint(task_identifier: str, error_type: str, message: str, traceback: str) -> str:
    """Sixteen hexadecimal digits."""
    return _digest(task_identifier, error_type, place_in(traceback), template_of(message))


@lru_cache(maxsize=200)
def _digest(*parts: str) -> str:
    return blake2b("\0".join(parts).encode("utf-8", "replace"), digest_size=8).hexdigest()


def template_of(message: str) -> str:
    """The first line of a message with numbers, ids and quoted values replaced by `…`."""
    line = message.strip().partition("\n")[0][:MAX_FINGERPRINTED]
    return _VARIABLE.sub("…", line)


def place_in(traceback: str) -> str:
    """File and function of the innermost frame outside of libraries; without its line, which changes."""
    stack, _, last = traceback.rpartition("\n")
    return _place_in(traceback if 'File "' in last else stack)  # errors of one place differ in the last line


@lru_cache(maxsize=200)
def _place_in(traceback: str) -> str:
    frames = _FRAME.findall(traceback)
    own = [frame for frame in frames if not _LIBRARY.search(frame[0])]
    for path, function in (own or frames)[-1:]:
        return f"{path} in {function}"
    return ""


# -- which group a last error belongs to --------------------------------------------------------------------

_DIGITS = str.maketrans("123456789", "000000000")
_TYPE = re.compile(r"([A-Za-z_][\w.<>]*)(?::\s+|\n|$)")
_PLACE = re.compile(r"\n  at ([^\n]+), line \d+, in ([^\n]+)")


class ErrorText(NamedTuple):
    """What `last_error` tells of its group: `fingerprint` knows more, but jobs only have the text."""

    error_type: str
    """Empty if the text does not begin with one."""
    template: str
    place: str
    """`tasks/orders.py in ship`, relative to the folder of the worker; empty if the text has none."""


@lru_cache(maxsize=20_000)
def parse_error(text: str) -> ErrorText:
    """The parts of a `last_error` that are alike for all errors of a group."""
    text = text.translate(_DIGITS)
    headline = text.partition("\n  at ")[0]
    found = _TYPE.match(headline)
    kind = found[1] if found else ""
    message = headline[found.end() :] if found else headline
    place = _PLACE.search(text)
    return ErrorText(kind, template_of(message.strip() or kind), f"{place[1]} in {place[2]}" if place else "")


class ErrorMatcher:
    """Tells the group of a job by its `last_error`, because workers keep only some errors of a kind.

    `kept` are errors that were kept: task, fingerprint and the text that is also in `last_error`. They teach
    what the texts of a group look like; for other texts, type, message and place of the groups decide.
    """

    def __init__(self, groups: Iterable[ErrorGroup], kept: Iterable[tuple[str, str, str]] = ()) -> None:
        self._groups: dict[tuple[str, str], list[ErrorGroup]] = {}
        for group in groups:
            template = template_of(group.message.translate(_DIGITS))
            self._groups.setdefault((group.task_identifier, template), []).append(group)
        self._taught: dict[tuple[str, ErrorText], set[str]] = {}
        for task_identifier, fingerprint, text in kept:
            self._taught.setdefault((task_identifier, parse_error(text)), set()).add(fingerprint)
        self._known: dict[tuple[str, ErrorText], frozenset[str]] = {}

    def groups_of(self, task_identifier: str, text: str) -> frozenset[str]:
        """Fingerprints of the groups that the text may be of: none, one, or several that look alike."""
        key = task_identifier, parse_error(text)
        found = self._known.get(key)
        if found is None:
            alike = self._groups.get((task_identifier, key[1].template), ())
            found = frozenset({each.fingerprint for each in alike if _is_like(key[1], each)})
            found = self._known[key] = found | self._taught.get(key, set())
        return found


def _is_like(text: ErrorText, group: ErrorGroup) -> bool:
    if text.error_type and text.error_type != group.error_type.translate(_DIGITS):
        return False
    place = group.place.translate(_DIGITS)
    return not text.place or not place or place == text.place or place.endswith("/" + text.place)

"""One filter for jobs: from the text box, from query parameters, from JSON; and back; and to a JobFilter.

    state:failed task:send_email key:abc* priority:<0 attempts:>3 created:>1h run:<now error:"timeout"
    payload.user_id:42 id:1000-2000
    state:finished outcome:failed finished:>1d duration:>30s

`state:finished` chooses jobs of the history. A bare number is an id; other bare words are searched in task,
key and error. Times are `now`, ISO 8601, or
a period: `1h` is an hour ago, `+1h` in an hour; `>` is later, `<` earlier, `a..b` between.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Literal, NamedTuple, TypeVar
from urllib.parse import quote

import msgspec

from ...database.connections.connection import Connection
from ...database.connections.errors import if_readable
from ...database.sql import load
from ...database.statements.job_filter import CONDITIONS, FILTER_STATES, JobFilter
from ...errors import InvalidArgumentError
from ...history.records import FINISHED_STATES, FinishedState
from ...values.schema_name import SchemaName
from ...values.text import parse_time_phrase
from ..answers import Problem
from ..database import Database
from ..security.redact import HIDDEN, Redactor

T = TypeVar("T")

FINISHED = "finished"
STATES = (*FILTER_STATES, FINISHED)
PAYLOAD = "payload."
CHOICES: dict[str, tuple[str, ...]] = {"state": STATES, "outcome": FINISHED_STATES}


class Condition(NamedTuple):
    """A condition that filters know, for the box, the form, the API and its description."""

    name: str
    label: str
    help: str
    """What to write."""
    example: str = ""
    in_history: bool = False
    """Whether finished jobs are searched by it."""

    @property
    def options(self) -> list[tuple[str, str]]:
        """For its field, if all of its values are known."""
        choices = CHOICES.get(self.name, ())
        return [("", "any"), *zip(choices, choices, strict=True)] if choices else []


FIELDS = (
    Condition("state", "State", "ready, scheduled, retrying, running, failed or finished", in_history=True),
    Condition("key", "Job key", "the job key; abc* for its beginning", "abc*", in_history=True),
    Condition("task", "Task", "the task identifier", in_history=True),
    Condition("queue", "Queue", "the named queue", in_history=True),
    Condition("tag", "Tag", "a tag"),
    Condition("flag", "Flag", "a flag"),
    Condition("worker", "Worker", "the pool that has locked the job, or has run it last", in_history=True),
    Condition("priority", "Priority", "5, <0 or 1..5", "<0 or 1..5"),
    Condition("attempts", "Attempts", ">3", ">3"),
    Condition("created", "Added", ">1h: in the last hour; <2030-01-31, or 2d..1d between", ">1h"),
    Condition("run", "Run at", "<now: due", "<now"),
    Condition("failed", "Failed at", ">1d: failed in the last day", ">1d"),
    Condition("outcome", "Outcome, of finished jobs", ", ".join(FINISHED_STATES), in_history=True),
    Condition("finished", "Finished at", ">1d: ended in the last day", ">1d", in_history=True),
    Condition("duration", "Duration, of finished jobs", ">30s, <500ms or 1m..5m", ">30s", in_history=True),
    Condition("error", "Error contains", "a part of the last error, in upper or lower case", in_history=True),
    Condition("id", "Id", "12 or 1000-2000", "1000-2000", in_history=True),
    Condition("text", "Task, key or error contains", "a part of task, key or error", in_history=True),
)  # fmt: skip
"""All conditions but `payload.PATH`, in the order in which a filter is written."""
NAMES = tuple(each.name for each in FIELDS)
OF_FINISHED = ("outcome", "finished", "duration")
"""Conditions that only finished jobs have."""
SEARCHED_IN_HISTORY = tuple(each.name for each in FIELDS if each.in_history)
LONGEST = 200
"""Characters of one condition."""
MOST = 20
"""Conditions of one filter."""

_PART = re.compile(r'([A-Za-z_][^\s:"]*):("(?:[^"\\]|\\.)*"|\S*)|("(?:[^"\\]|\\.)*")|(\S+)')
_PLAIN = re.compile(r'[^\s"]+')
_NUMBERS = re.compile(r"(>=|<=|>|<)?(-?\d{1,19})|(-?\d{1,19})(?:\.\.|-)(-?\d{1,19})")
_BETWEEN = re.compile(r"(>=|<=|>|<)?(.+?)(?:\.\.(.+))?")


class FinishedFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which finished jobs to list. All conditions must hold; None means any."""

    outcome: FinishedState | None = None
    task_identifier: str | None = None
    queue_name: str | None = None
    job_key: str | None = None
    key_prefix: str | None = None
    locked_by: str | None = None
    """The pool that ran the last attempt."""
    finished_since: datetime | None = None
    finished_until: datetime | None = None
    duration_from: float | None = None
    duration_to: float | None = None
    id_from: int | None = None
    id_to: int | None = None
    error: str | None = None
    text: str | None = None
    redactor: Redactor | None = None
    """For a person who may not see secrets: then they are not found either."""

    @property
    def has_unserved(self) -> bool:
        """Whether there is a condition that no index serves."""
        names = (
            "queue_name", "job_key", "key_prefix", "locked_by", "duration_from", "duration_to", "error",
            "text",
        )  # fmt: skip
        return any(getattr(self, name) is not None for name in names)


@dataclass(frozen=True, slots=True)
class Filter:
    """Conditions as a person wrote them: names and texts, in the order of `NAMES`."""

    conditions: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, text: str) -> Filter:
        """From the text box."""
        return cls.of(_parts(text))

    @classmethod
    def of(cls, pairs: Iterable[tuple[str, str]]) -> Filter:
        """From names and texts, such as query parameters; empty ones are left out, the last of a name counts.

        A pair `q` is a text as in the box.
        """
        found: dict[str, str] = {}
        for name, text in pairs:
            value = text.strip()
            if name == "q":
                found |= dict(cls.parse(value).conditions)
            elif value:
                found[name] = _checked(name, value)
        if len(found) > MOST:
            raise Problem(400, "The filter is too long", f"It has more than {MOST} conditions.")
        order = {name: place for place, name in enumerate(NAMES)}
        return cls(tuple(sorted(found.items(), key=lambda pair: (order.get(pair[0], len(order)), pair[0]))))

    @classmethod
    def from_query(cls, pairs: Iterable[tuple[str, str]]) -> Filter:
        """From the parameters of a URL, of which others may be for something else."""
        return cls.of(pair for pair in pairs if pair[0] in (*NAMES, "q") or pair[0].startswith(PAYLOAD))

    @property
    def text(self) -> str:
        """As in the text box."""
        return " ".join(f"{name}:{_quoted(value)}" for name, value in self.conditions)

    @property
    def query(self) -> dict[str, str]:
        """As parameters of a URL."""
        return dict(self.conditions)

    def get(self, name: str) -> str:
        return dict(self.conditions).get(name, "")

    def replaced(self, **values: str | None) -> Filter:
        """The same with other conditions; None or an empty text removes one."""
        return Filter.of(
            (dict(self.conditions) | {name: text or "" for name, text in values.items()}).items()
        )

    def without(self, name: str) -> Filter:
        return Filter(tuple(pair for pair in self.conditions if pair[0] != name))

    def redacted(self, redactor: Redactor) -> Filter:
        """The same for everyone's eyes, without the values of redacted members and other secrets."""
        return Filter(
            tuple(
                (name, HIDDEN if _is_secret(name, redactor) else redactor.text(text))
                for name, text in self.conditions
            )
        )

    def __bool__(self) -> bool:
        return bool(self.conditions)

    @property
    def is_finished(self) -> bool:
        """Whether it is about finished jobs, which are not in the queue."""
        return self.get("state").lower() == FINISHED or (
            not self.get("state") and any(name in OF_FINISHED for name, _ in self.conditions)
        )

    def finished_filter(self, *, redactor: Redactor | None = None) -> FinishedFilter:
        """The conditions on finished jobs; `redactor` as for `job_filter`."""
        now = datetime.now(UTC)
        values: dict[str, Any] = {}
        for name, text in self.conditions:
            if name not in SEARCHED_IN_HISTORY:
                raise Problem(
                    400, f"Finished jobs are not searched by {name[:50]}",
                    f"Use {', '.join(SEARCHED_IN_HISTORY[1:])}.",
                )  # fmt: skip
            values |= {} if name == "state" else _values(name, text, now)
        return FinishedFilter(**values, redactor=redactor)

    def job_filter(
        self, *, now: datetime | None = None, redactor: Redactor | None = None, **more: Any
    ) -> JobFilter:
        """The client's filter.

        `redactor` is for a person who may not see secrets: then a search does not find them either.
        """
        if self.is_finished:
            raise Problem(400, "Finished jobs cannot be changed", "They are no longer in the queue.")
        at = now if now is not None else datetime.now(UTC)
        values: dict[str, Any] = {}
        for name, text in self.conditions:
            values |= _values(name, text, at)
        payload = {name.removeprefix(PAYLOAD): text for name, text in self.conditions if _is_path(name)}
        if payload:
            values["payload"] = payload
        if redactor is not None:
            _hide_secrets(values, redactor)
        try:
            return JobFilter(**values, **more)
        except InvalidArgumentError as error:
            raise Problem(400, "The filter is not valid", str(error)) from None


def _hide_secrets(values: dict[str, Any], redactor: Redactor) -> None:
    """Search as if redacted values were not there."""
    for path, text in values.get("payload", {}).items():
        if _may_hold_secrets(path.split("."), text, redactor):
            raise Problem(
                403, "This cannot be searched",
                f"payload.{path} is redacted. To search it needs the permission payload.read.",
            )  # fmt: skip
    if redactor.replaces_payloads and "payload" in values:
        raise Problem(
            403, "This cannot be searched", "To search payloads needs the permission payload.read here."
        )
    for name in ("error", "text"):
        if name in values:
            values[f"redacted_{name}"] = values.pop(name)


def _may_hold_secrets(path: list[str], text: str, redactor: Redactor) -> bool:
    """Whether a viewer could guess a hidden value by searching: as itself, as a part of an object or a list,
    or in a list beside its name."""
    if redactor.hides(path) or redactor.text(text) != text:
        return True
    is_beside_name = len(path) > 1 and path[-1].isdecimal() and path[-1] != "0"
    return is_beside_name or (text[:1] in ("{", "[") and redactor.json(text, path) != text)


def _is_secret(name: str, redactor: Redactor) -> bool:
    return _is_path(name) and (
        redactor.replaces_payloads or redactor.hides(name.removeprefix(PAYLOAD).split("."))
    )


def _parts(text: str) -> Iterator[tuple[str, str]]:
    words: list[str] = []
    for found in _PART.finditer(text):
        name, value, quoted, word = found.groups()
        if name is not None and (name in NAMES or _is_path(name)):
            yield name, _unquoted(value)
        elif word is not None and word.isdecimal() and len(word) <= 19:
            yield "id", word
        else:
            words.append(_unquoted(quoted) if quoted is not None else found[0])
    if words:
        yield "text", " ".join(words)


def _is_path(name: str) -> bool:
    return name.startswith(PAYLOAD) and len(name) > len(PAYLOAD)


def _checked(name: str, value: str) -> str:
    if name not in NAMES and not _is_path(name):
        raise Problem(
            400, f"There is no filter {name[:50]!r}", f"There are {', '.join(NAMES)} and payload.PATH."
        )
    if len(value) > LONGEST or len(name) > LONGEST:
        raise Problem(400, "The filter is too long", f"A condition has at most {LONGEST} characters.")
    if "\0" in value or "\0" in name:
        raise Problem(400, "The filter is not valid", "It contains a NUL character.")
    return value


def _values(name: str, text: str, now: datetime) -> dict[str, Any]:
    """The conditions of a JobFilter that one condition stands for."""
    if name == "state":
        return {"state": _choice("state", text, STATES)}
    if name == "key":
        return {"key_prefix": text[:-1]} if text.endswith("*") and len(text) > 1 else {"job_key": text}
    if name in ("id", "priority", "attempts"):
        first, last = _numbers(name, text)
        return _given({f"{name}_from": first, f"{name}_to": last})
    if name == "outcome":
        return {"outcome": _choice("outcome", text, FINISHED_STATES)}
    if name == "duration":
        shortest, longest = _between(text, _seconds, _bad_period)
        return _given({"duration_from": shortest, "duration_to": longest})
    if name in ("created", "run", "failed", "finished"):
        since, until = _between(text, lambda part: _instant(part, now), lambda: _bad_time(name))
        return _given({f"{name}_since": since, f"{name}_until": until})
    if name in ("error", "text"):
        return {name: text}
    return {CONDITIONS[name][0]: text} if name in CONDITIONS else {}


def _choice(name: str, text: str, known: tuple[str, ...]) -> str:
    if text.lower() not in known:
        hint = (
            " Finished jobs have an outcome." if name == "state" and text.lower() in FINISHED_STATES else ""
        )
        raise Problem(400, f"There is no {name} {text[:50]!r}", f"There are {', '.join(known)}.{hint}")
    return text.lower()


def _numbers(name: str, text: str) -> tuple[int | None, int | None]:
    found = _NUMBERS.fullmatch(text)
    if found is None:
        raise Problem(400, f"{name} is not a number or a range", f"Write {name}:5, {name}:>5 or {name}:1..5.")
    sign, number, first, last = found.groups()
    if number is None:
        return int(first), int(last)
    value = int(number)
    if sign is None:
        return value, value
    if sign.startswith(">"):
        return value + (sign == ">"), None
    return None, value - (sign == "<")


def _between(
    text: str, convert: Callable[[str], T], problem: Callable[[], Problem]
) -> tuple[T | None, T | None]:
    """The first and the last of what `a..b`, `>a` or `<b` mean; a value alone is the first."""
    found = _BETWEEN.fullmatch(text)
    if found is None:
        raise problem()
    sign, first, last = found.groups()
    try:
        value = convert(first.strip())
        if last is not None:
            return value, convert(last.strip())
    except (ValueError, OverflowError):
        raise problem() from None
    return (None, value) if sign is not None and sign.startswith("<") else (value, None)


def _seconds(text: str) -> float:
    return float(text[:-2]) / 1000 if text.endswith("ms") else float(parse_time_phrase(text.lower()))


def _bad_period() -> Problem:
    return Problem(
        400, "duration is not a period", "Write duration:>30s, duration:<500ms or duration:1m..5m."
    )


def _instant(text: str, now: datetime) -> datetime:
    """`now`, a period before now (`1h`, `-1h`) or after it (`+1h`), or a date or time; UTC without a zone."""
    if text.lower() == "now":
        return now
    with suppress(ValueError, OverflowError):
        period = timedelta(seconds=parse_time_phrase(text.lstrip("+-").lower()))
        return now + period if text.startswith("+") else now - period
    at = datetime.fromisoformat(text)
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


def _bad_time(name: str) -> Problem:
    return Problem(
        400, f"{name} is not a time",
        f"Write {name}:>1h (later than an hour ago), {name}:<2030-01-31T12:00Z or {name}:2d..1d.",
    )  # fmt: skip


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _quoted(value: str) -> str:
    if _PLAIN.fullmatch(value):
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _unquoted(value: str) -> str:
    if len(value) >= 2 and value.startswith('"') and value.endswith('"'):
        return re.sub(r"\\(.)", r"\1", value[1:-1])
    return value


# -- completion ---------------------------------------------------------------------------------------------

MOST_NAMES = 50

NameKind = Literal["task", "queue"]


class Suggestion(msgspec.Struct, frozen=True):
    """What can stand in place of the word that is being typed."""

    value: str
    hint: str = ""


async def complete(database: Database, word: str) -> list[Suggestion]:
    """Suggestions for the last word of a filter."""
    name, colon, text = word.partition(":")
    if not colon:
        return await _names_and_tasks(database, word)
    if name in CHOICES:
        return [Suggestion(f"{name}:{one}") for one in CHOICES[name] if one.startswith(text.lower())]
    if name in ("task", "queue"):
        kind: NameKind = "task" if name == "task" else "queue"
        async with database.read() as connection:
            found = await names(connection, database.schema, kind, text.strip('"'))
        return [Suggestion(Filter(((name, value),)).text) for value in found]
    return []


async def _names_and_tasks(database: Database, word: str) -> list[Suggestion]:
    hints = {f"{each.name}:": each.help for each in FIELDS} | {PAYLOAD: "a member: payload.user_id:42"}
    own = [Suggestion(name, hint) for name, hint in hints.items() if name.startswith(word.lower())]
    async with database.read() as connection:
        tasks = await names(connection, database.schema, "task", word, most=10)
        queues = await names(connection, database.schema, "queue", word, most=5) if word else []
    return [
        *own,
        *(Suggestion(Filter((("task", value),)).text, "task") for value in tasks),
        *(Suggestion(Filter((("queue", value),)).text, "queue") for value in queues),
    ]


async def names(
    connection: Connection, schema: SchemaName, kind: NameKind, text: str = "", most: int = MOST_NAMES
) -> list[str]:
    """Names of tasks that contain the text, or of queues that begin with it."""
    rows = await connection.fetch(load(f"admin/complete_{kind}s", schema), text, most)
    return [row["name"] for row in rows]


# -- the search box -----------------------------------------------------------------------------------------

EACH = 8
"""Names of one kind that a search finds."""
PageKind = Literal["task", "queue", "worker", "schedule", "job"]
PAGES: dict[PageKind, str] = {
    "task": "/task?name=", "queue": "/queue?name=", "worker": "/worker?id=",
    "schedule": "/schedule?identifier=",
}  # fmt: skip


class NamedPage(msgspec.Struct, frozen=True):
    """A page about something that has a name."""

    label: str
    kind: PageKind
    path: str


async def named(database: Database, word: str) -> list[NamedPage]:
    """Queues that begin with the text; tasks, workers and schedules that contain it; a job with that id."""
    word = word.strip()
    found: list[NamedPage] = []
    if not word:
        return found
    schema = database.schema
    async with database.read() as connection:
        if word.isdecimal() and len(word) < 19:
            statement, job_id = load("admin/is_known_job", schema), int(word)
            is_known = await if_readable(connection, lambda: connection.fetchval(statement, job_id))
            found += [NamedPage(word, "job", f"/jobs/{word}")] if is_known else []
        for kind, path in PAGES.items():
            statement = load(f"admin/complete_{kind}s", schema)
            rows = await if_readable(connection, partial(connection.fetch, statement, word, EACH))
            found += [NamedPage(row["name"], kind, path + quote(row["name"], safe="")) for row in rows or ()]
    return found

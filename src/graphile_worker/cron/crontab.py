"""Crontab text: parsing it, and checking recurring jobs from there or from code. Pure; `load.py` reads files.

A line is five time fields (or an `@` word), a task, and optionally `?options` and a `{…}` payload in JSON5.
The options, `?id=…&fill=…`, are in URL query syntax. Empty lines and lines that start with `#` are skipped;
there are no comments after an item. Every problem has its line and column.

The limits are those of JobSpec. An item that the database rejects would block all others of its minute, so
it is rejected when it is read.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import unquote_plus
from zoneinfo import ZoneInfo

import msgspec

from ..errors import CrontabError, CrontabProblem, InvalidArgumentError
from ..values.job_options import JobOption, from_text, options_on
from ..values.payload import encode
from ..values.spec import MAX_IDENTIFIER_LENGTH, JobSpec, check_job_key_mode, check_name, check_unique
from ..values.text import closest, parse_time_phrase
from .fields import KINDS, CronFields, FieldError, expand_macro, parse_field, parse_pattern
from .item import CronItemOptions, ParsedCronItem, ParsedCronOptions
from .matcher import PatternMatcher, find_zone

_BLANK = " \t\r\f\v\u00a0\ufeff\u2028\u2029"
_COMMAND = re.compile(
    r"(?P<task>[A-Za-z_][A-Za-z0-9_:/.-]*)(?:\s+\?(?P<options>\S+))?(?:\s+(?P<payload>\{.*\}))?", re.DOTALL
)
_COMMAND_FORM = "expected a task, then optionally ?options without spaces, then optionally a {payload}"
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_:/.-]")


def parse_crontab(text: str, *, source: str = "crontab") -> list[ParsedCronItem]:
    """Parse a crontab. Raises CrontabError, which lists every problem; `source` names the file in it."""
    items, problems = read_crontab(text, source=source)
    if problems:
        raise CrontabError("\n".join(map(str, problems)), problems=problems)
    return items


def read_crontab(
    text: str, *, source: str = "crontab", known_tasks: Iterable[str] | None = None
) -> tuple[list[ParsedCronItem], list[CrontabProblem]]:
    """The valid items, and every problem. With `known_tasks`, any other task is a problem."""
    items: list[ParsedCronItem] = []
    problems: list[CrontabProblem] = []
    known = None if known_tasks is None else frozenset(known_tasks)
    for number, line in enumerate(re.split(r"\r?\n", text), 1):
        content = line.strip().strip(_BLANK)
        if content and not content.startswith("#"):
            reader = _LineReader(content, source, number, line.index(content))
            item = reader.read()
            problems += reader.problems
            if item is not None:
                items.append(item)
            if known is not None:
                problems += reader.unknown_task(known)
    for item, other in _repeated(items):
        message = f"the identifier {item.identifier!r} is already used in line {other.line}; add ?id="
        problems.append(
            CrontabProblem(source=item.source, line=item.line, column=item.column, message=message)
        )
    return items, sorted(problems, key=lambda problem: (problem.line or 0, problem.column or 0))


def _repeated(items: Iterable[ParsedCronItem]) -> Iterator[tuple[ParsedCronItem, ParsedCronItem]]:
    """Items whose identifier an earlier one has, and that one."""
    first: dict[str, ParsedCronItem] = {}
    for item in items:
        other = first.setdefault(item.identifier, item)
        if other is not item:
            yield item, other


class _LineReader:
    """Parses one line and collects its problems; columns count from the start of the untrimmed line."""

    def __init__(self, content: str, source: str, number: int, indent: int) -> None:
        self.content = content
        self.source = source
        self.number = number
        self.indent = indent
        self.problems: list[CrontabProblem] = []
        self._command: re.Match[str] | None = None

    def read(self) -> ParsedCronItem | None:
        words = [(match.group(), match.start()) for match in re.finditer(r"\S+", self.content)]
        field_count = 1 if self.content.startswith("@") else len(KINDS)
        if len(words) <= field_count:
            self._report_too_short(words, field_count)
            return None
        fields = self._fields(words[:field_count])
        if fields is None and field_count == 1:  # the rest of the line cannot be interpreted
            return None
        start = words[field_count][1]
        self._command = command = _COMMAND.fullmatch(self.content, start)
        if command is None:
            found = self.content[start:]
            fault = _name_fault(words[field_count][0]) or _COMMAND_FORM
            self._report(start, f"invalid command specification {found!r}; {fault}")
            return None
        item = self._item(fields, command, " ".join(word for word, _ in words[:field_count]))
        return None if self.problems else item

    def unknown_task(self, known: frozenset[str]) -> list[CrontabProblem]:
        """A problem if the task of this line is unknown, whatever else is wrong with the line."""
        if self._command is None or self._command["task"] in known:
            return []
        task = self._command["task"]
        near = closest(task, known, cutoff=0.7)
        hint = f"; did you mean {near!r}?" if near else ""
        return [self._problem(self._command.start("task"), f"unknown task {task!r}{hint}")]

    def _item(self, fields: CronFields | None, command: re.Match[str], pattern: str) -> ParsedCronItem | None:
        task = command["task"]
        if len(task) > MAX_IDENTIFIER_LENGTH:
            self._report(
                command.start("task"), f"the task identifier has more than {MAX_IDENTIFIER_LENGTH} characters"
            )
        text = self._options(command)
        payload = self._payload(command)
        if fields is None:
            return None
        return ParsedCronItem(
            task_identifier=task,
            match=PatternMatcher(fields, text.options.tz),
            options=text.options,
            payload=payload,
            identifier=text.identifier or task,
            pattern=pattern,
            source=self.source,
            line=self.number,
            column=self.indent + command.start("task") + 1,
        )

    def _fields(self, words: list[tuple[str, int]]) -> CronFields | None:
        first, start = words[0]
        if first.startswith("@"):
            try:
                return parse_pattern(expand_macro(first))
            except FieldError as error:
                self._report(start, f"could not process the line: {error}")
                return None
        values = []
        for (word, offset), kind in zip(words, KINDS, strict=True):
            try:
                values.append(parse_field(word, kind, offset))
            except FieldError as error:
                self._report(error.offset, str(error))
        return CronFields(*values) if len(values) == len(KINDS) else None

    def _options(self, command: re.Match[str]) -> OptionText:
        text = parse_option_text(command["options"] or "")
        for offset, message in text.faults:
            self._report(command.start("options") + offset, message)
        return text

    def _payload(self, command: re.Match[str]) -> dict[str, Any] | None:
        if command["payload"] is None:
            return None
        try:
            payload = _decode(command["payload"])
        except ValueError as error:
            self._report(command.start("payload"), f"the payload is not JSON5: {error}")
            return None
        try:
            return checked_payload(payload)
        except OptionFault as fault:
            self._report(command.start("payload"), f"the payload cannot be used: {fault}")
            return None

    def _report_too_short(self, words: list[tuple[str, int]], field_count: int) -> None:
        expected = "a task after the time" if field_count == 1 else "five time fields and a task"
        self._report(0, f"could not process the line: expected {expected}, found {len(words)} words")

    def _report(self, offset: int, message: str) -> None:
        self.problems.append(self._problem(offset, message))

    def _problem(self, offset: int, message: str) -> CrontabProblem:
        return CrontabProblem(
            source=self.source,
            line=self.number,
            column=self.indent + offset + 1,
            message=message,
            text=" " * self.indent + self.content,
        )


def _name_fault(word: str) -> str | None:
    """What keeps the first word of a command from being the name of a task."""
    if not re.match(r"[A-Za-z_]", word):
        return f"the name of a task begins with a letter or an underscore, not with {word[0]!r}"
    found = _NOT_IN_NAMES.search(word)
    if found is None:
        return None
    if found.group() in "?{":
        return f"there must be a space before the {found.group()!r}"
    return f"the name of a task may not have {found.group()!r}; allowed: letters, digits and _ : / . -"


def _decode(text: str) -> dict[str, Any]:
    """A JSON5 object. Most payloads are strict JSON, which decodes a thousand times faster."""
    try:
        try:
            return msgspec.json.decode(text, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeEncodeError):
            import json5

        value: dict[str, Any] = json5.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return value


JOB_KEY_MODES = ("replace", "preserve_run_at")


class OptionFault(ValueError):
    """An option has an invalid value; `option` is its name in CronItemOptions."""

    def __init__(self, option: str, message: str) -> None:
        self.option = option
        super().__init__(message)


def checked_options(options: CronItemOptions | Mapping[str, Any]) -> ParsedCronOptions:
    """The options, validated and in their final form. Raises OptionFault."""
    if isinstance(options, Mapping):
        options = _from_mapping(options)
    if not isinstance(options, CronItemOptions):
        raise OptionFault("options", f"expected CronItemOptions or a mapping, got {options!r}")
    jobs = {option.name: getattr(options, option.name) for option in options_on("cron")}
    jobs |= {name: _as_period(name, jobs[name]) for name in ("timeout", "expires")}
    mode = jobs.pop("job_key_mode")
    with _option_faults():
        JobSpec("any", **jobs | {"job_key": jobs["job_key"] or None, "unique": None})
        if mode is not None:
            check_job_key_mode(mode, JOB_KEY_MODES)
        if (unique := jobs["unique"]) is not None:
            check_unique(unique)
            if jobs["job_key"] or mode:
                raise OptionFault("unique", "cannot be combined with a job key: it sets one")
    return ParsedCronOptions(
        **jobs,
        backfill_period=_period("backfill_period", options.backfill_period),
        job_key_mode=mode or ("replace" if options.job_key else None),
        tz=_zone(options.tz),
    )


def check_identifier(what: str, identifier: object) -> None:
    """Reject an identifier that the database cannot store."""
    with _option_faults():
        check_name(what, identifier, MAX_IDENTIFIER_LENGTH)


@contextmanager
def _option_faults() -> Iterator[None]:
    try:
        yield
    except InvalidArgumentError as error:
        raise OptionFault(error.argument, str(error).removeprefix(f"{error.argument}: ")) from None


def check_identifiers(items: Iterable[ParsedCronItem]) -> None:
    """Reject two items with the same identifier: they would share their last_execution."""
    problems = [
        CrontabProblem(
            source=item.source or "cron item",
            line=item.line,
            message=f"the identifier {item.identifier!r} is already used in {other.place}; change one",
        )
        for item, other in _repeated(items)
    ]
    if problems:
        raise CrontabError("\n".join(map(str, problems)), problems=problems)


def checked_payload(payload: Any) -> dict[str, Any]:
    """The payload as a JSON object, from a mapping, a dataclass, a msgspec struct or a pydantic model."""
    with _option_faults():
        value = msgspec.json.decode(encode(payload))
    if not isinstance(value, dict):
        raise OptionFault("payload", f"expected an object, got {payload!r}")
    return value


def _from_mapping(values: Mapping[str, Any]) -> CronItemOptions:
    known = [field.name for field in dataclasses.fields(CronItemOptions)]
    for name in values:
        if name not in known:
            near = closest(name, known)
            hint = f"did you mean {near}? " if near else ""
            raise OptionFault(name, f"unknown option; {hint}allowed: {', '.join(known)}")
    return CronItemOptions(**values)


def _period(option: str, value: object) -> float:
    if isinstance(value, str):
        try:
            return parse_time_phrase(value)
        except ValueError as error:
            raise OptionFault(option, str(error)) from None
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise OptionFault(option, f"expected seconds or a timedelta, got {value!r}")
    if not 0 <= seconds < math.inf:
        raise OptionFault(option, f"expected 0 or more seconds, got {value!r}")
    return float(seconds)


def _as_period(option: str, value: object) -> timedelta | None:
    if isinstance(value, datetime):
        raise OptionFault(option, f"expected a period such as 2h, got the time {value}")
    return None if value is None else timedelta(seconds=_period(option, value))


def _zone(value: object) -> ZoneInfo | None:
    if value is None or isinstance(value, ZoneInfo):
        return value
    if not isinstance(value, str):
        raise OptionFault("tz", f"expected the name of a time zone, got {value!r}")
    try:
        return find_zone(value)
    except CrontabError as error:
        raise OptionFault("tz", str(error)) from None


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_QUEUE = re.compile(r"[A-Za-z0-9_:-]+")
_DIGITS = re.compile(r"[0-9]{1,9}")
_WHOLE = re.compile(r"-?[0-9]{1,9}")
_ANYTHING = re.compile(r".*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class _Key:
    """One option of a crontab line: its field, the pattern of its value, and that pattern in words."""

    field: str
    pattern: re.Pattern[str]
    allowed: str
    is_number: bool = False
    option: JobOption | None = None
    """Reads the value, if Node does not have the option."""

    def read(self, value: str) -> Any:
        """The value of the option. Raises ValueError."""
        if self.option is not None:
            return from_text(self.option, value)
        if not self.pattern.fullmatch(value):
            raise ValueError(f"allowed: {self.allowed}")
        return int(value) if self.is_number else value


_KEYS = {
    "id": _Key("identifier", _NAME, "a letter or underscore, then letters, digits, _ and -"),
    "fill": _Key("backfill_period", re.compile(r"(?:[0-9]+[smhdw])+"), "a time phrase such as 4w3d2h1m"),
    "max": _Key("max_attempts", _DIGITS, "a whole number from 1 to 32767", True),
    "queue": _Key("queue_name", _QUEUE, "letters, digits, _, : and -"),
    "jobKey": _Key("job_key", _ANYTHING, "any text"),
    "jobKeyMode": _Key("job_key_mode", re.compile("|".join(JOB_KEY_MODES)), " or ".join(JOB_KEY_MODES)),
    "priority": _Key("priority", _WHOLE, "a whole number such as 3 or -3", True),
    "tz": _Key("tz", re.compile(r".+"), "a time zone such as Europe/Berlin"),
}
"""What Node has, which takes nothing else, and the time zone."""
_KEYS |= {
    option.crontab: _Key(option.name, _ANYTHING, "", option=option)
    for option in options_on("crontab")
    if option.crontab not in _KEYS
}
_OTHER_SPELLINGS = {"job_key": "jobKey", "job_key_mode": "jobKeyMode", "keep_payload": "keepPayload"}


@dataclass(frozen=True, slots=True)
class OptionText:
    """The options of one line, and their problems as (offset, message)."""

    options: ParsedCronOptions
    identifier: str | None
    faults: tuple[tuple[int, str], ...]


def parse_option_text(text: str) -> OptionText:
    """Parse the text after the `?`. Offsets count from its first character."""
    values: dict[str, Any] = {}
    places: dict[str, int] = {}
    faults: list[tuple[int, str]] = []
    for offset, written, value in _segments(text):
        name = _OTHER_SPELLINGS.get(written, written)
        key = _KEYS.get(name)
        if key is None:
            faults.append((offset, f"unknown option {written!r}; allowed: {', '.join(_KEYS)}"))
        elif key.field in places:
            faults.append((offset, f"the option {written!r} is given twice"))
        else:
            places[key.field] = offset
            try:
                values[key.field] = key.read(value)
            except ValueError as error:
                faults.append((offset, f"the option {written!r} has value {value!r}; {error}"))
    identifier = values.pop("identifier", None)
    options = ParsedCronOptions()
    try:
        options = checked_options(values)
    except OptionFault as fault:
        # Single values may be fine, and not go together.
        found = list(_every_fault(values, places))
        faults += found or [(places[fault.option], f"the option {_written(fault.option)!r}: {fault}")]
    if identifier and len(identifier) > MAX_IDENTIFIER_LENGTH:
        faults.append(
            (places["identifier"], f"the option 'id' has more than {MAX_IDENTIFIER_LENGTH} characters")
        )
    return OptionText(options, identifier, tuple(sorted(faults)))


def _every_fault(values: dict[str, Any], places: dict[str, int]) -> Iterator[tuple[int, str]]:
    """Offset and message of each invalid value; a check of all at once finds only the first."""
    for field, value in values.items():
        try:
            checked_options({field: value})
        except OptionFault as fault:
            yield places[field], f"the option {_written(field)!r}: {fault}"


def _segments(text: str) -> Iterator[tuple[int, str, str]]:
    """Offset, key and value of each `key=value`, decoded; empty segments are skipped, as in browsers."""
    offset = 0
    for segment in text.split("&"):
        if segment:
            key, _, value = segment.partition("=")
            yield offset, unquote_plus(key), unquote_plus(value)
        offset += len(segment) + 1


def _written(field: str) -> str:
    return next(name for name, key in _KEYS.items() if key.field == field)

"""What a task expects of its payload, from the JSON Schema that workers publish: in words, and as a check.

The check knows types, required members, fixed values and unknown members. It does not know formats, ranges
and what the task's own code demands, so what it accepts may still fail in the worker.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from ...database.connections.connection import Connection
from ...database.connections.errors import if_readable
from ...database.statements.inspection import TaskDescription, get_task_description
from ...values.payload import without_trace
from ...values.schema_name import SchemaName
from ..security.redact import HIDDEN, Redactor


class ExpectedMember(msgspec.Struct, frozen=True, kw_only=True):
    """A member of a payload."""

    name: str
    type: str
    """In words."""
    is_required: bool
    default: str | None = None
    """JSON."""
    note: str = ""


class ExpectedGroup(msgspec.Struct, frozen=True):
    """A type of the payload, with its members if it is an object."""

    type: str
    members: list[ExpectedMember] = []


class TaskNotes(msgspec.Struct, frozen=True, kw_only=True):
    """What workers say about a task."""

    runbook: str | None = None
    """The address of a page that says what to do when its jobs fail."""
    owner: str | None = None
    payload_type: str | None = None
    """The annotation in the code."""
    payload: list[ExpectedGroup] = []
    """What the task expects: the payload itself, then the types it uses."""
    payload_schema: msgspec.Raw | None = None
    """JSON Schema."""


MAX_GROUPS = 8
MAX_MEMBERS = 60
MAX_DEPTH = 12
DEEPEST = 60
"""Levels of a schema that are read at all."""
MAX_VALUES = 20_000
"""Values of a payload that are checked."""
MAX_PROBLEMS = 5
WORDS = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false"}


async def read_notes(
    connection: Connection, schema: SchemaName, task: str | None, redactor: Redactor
) -> TaskNotes | None:
    """What workers say about a task, without secrets; None if they say nothing."""
    if not task:
        return None
    found = await if_readable(connection, lambda: get_task_description(connection, schema, task))
    return None if found is None else notes_of(found, redactor)


def notes_of(description: TaskDescription, redactor: Redactor) -> TaskNotes | None:
    """A description as pages and the API show it; None if it says nothing."""
    shape = _without_secrets(_decoded(description.payload_schema), redactor)
    runbook = description.runbook or ""
    notes = TaskNotes(
        runbook=runbook if runbook.startswith(("https://", "http://")) else None,
        owner=description.owner,
        payload_type=description.payload_type,
        payload=Expected(shape).groups() if shape is not None else [],
        payload_schema=None if shape is None else msgspec.Raw(msgspec.json.encode(shape)),
    )
    return None if notes == TaskNotes() else notes


def problems_of(notes: TaskNotes | None, payload: str) -> list[str]:
    """Why the task could not take this payload; empty if nothing is known against it."""
    if notes is None or notes.payload_schema is None:
        return []
    shape = msgspec.json.decode(notes.payload_schema)
    try:
        value = msgspec.json.decode(without_trace(payload))
    except msgspec.DecodeError as error:
        return [f"The payload cannot be read: {error}."]
    return Expected(shape).problems(value)


def _decoded(text: str | None) -> dict[str, Any] | None:
    try:
        found = None if text is None else msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


GIVEN = ("default", "examples", "example")
"""Members of a schema that hold values of the payload."""


def _without_secrets(shape: Any, redactor: Redactor, name: str = "", depth: int = 0) -> Any:
    """A schema without the secrets that a program has as defaults; `name` is that of the member."""
    if isinstance(shape, str):
        return redactor.text(shape)
    if isinstance(shape, list):
        return [_without_secrets(each, redactor, name, depth + 1) for each in shape if depth < DEEPEST]
    if not isinstance(shape, dict) or depth >= DEEPEST:
        return None if isinstance(shape, dict) else shape
    found: dict[str, Any] = {}
    for key, value in shape.items():
        if key in GIVEN and value is not None:
            text = msgspec.json.encode(value).decode()
            found[key] = (
                HIDDEN if redactor.hides_name(name) else msgspec.json.decode(redactor.json(text, [name]))
            )
        elif key in ("properties", "$defs") and isinstance(value, dict):
            found[key] = {
                each: _without_secrets(member, redactor, each if key == "properties" else "", depth + 1)
                for each, member in value.items()
            }
        else:
            found[key] = _without_secrets(value, redactor, name, depth + 1)
    return found


class Expected:
    """One JSON Schema. It comes from a table, so nothing about it is certain."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._is_lax = root.get("x-lax") is True
        """Whether the worker converts simple values, as pydantic does."""
        defs = root.get("$defs")
        self._defs: dict[str, Any] = defs if isinstance(defs, dict) else {}
        self._left = MAX_VALUES

    def _resolved(self, shape: Any) -> tuple[str, dict[str, Any]]:
        """The name of a shape, if it has one, and the shape itself."""
        name = ""
        for _ in range(MAX_DEPTH):
            if not isinstance(shape, dict):
                return name, {}
            reference = shape.get("$ref")
            if not isinstance(reference, str):
                title = shape.get("title")
                return name or (title if isinstance(title, str) and "properties" in shape else ""), shape
            name = reference.removeprefix("#/$defs/")
            shape = self._defs.get(name)
        return name, {}

    # -- in words ------------------------------------------------------------------------------------------

    def groups(self) -> list[ExpectedGroup]:
        """The members of the payload, then those of the types that it uses."""
        first = ExpectedGroup(self.words(self._root), self._members(self._root))
        found, names = [first], {self._resolved(self._root)[0]}
        for name, shape in list(self._defs.items())[: 4 * MAX_GROUPS]:
            if name not in names and len(found) < MAX_GROUPS:
                members = self._members(shape)
                if members:
                    found.append(ExpectedGroup(name, members))
        return found

    def _members(self, shape: Any) -> list[ExpectedMember]:
        _, resolved = self._resolved(shape)
        members, required = _mapping(resolved, "properties"), _names(resolved, "required")
        return [
            ExpectedMember(
                name=name,
                type=self.words(member),
                is_required=name in required,
                default=_default(member),
                note=_note(member),
            )
            for name, member in list(members.items())[:MAX_MEMBERS]
        ]

    def words(self, shape: Any, depth: int = 0) -> str:
        """A type in words."""
        name, resolved = self._resolved(shape)
        if name:
            return name
        if depth > 4:
            return "…"
        for key in ("anyOf", "oneOf"):
            if isinstance(resolved.get(key), list):
                parts = [self.words(each, depth + 1) for each in resolved[key][:8]]
                return " or ".join(dict.fromkeys(parts))
        if isinstance(resolved.get("enum"), list):
            return " or ".join(_value(each) for each in resolved["enum"][:8])
        if "const" in resolved:
            return _value(resolved["const"])
        kind = resolved.get("type")
        if isinstance(kind, list):
            return " or ".join(WORDS.get(each, str(each)) for each in kind[:4])
        if kind == "array":
            return f"list of {self.words(resolved['items'], depth + 1)}" if "items" in resolved else "list"
        if kind == "object":
            more = resolved.get("additionalProperties")
            if isinstance(more, dict) and more:
                return f"object with values: {self.words(more, depth + 1)}"
            return "object"
        form = resolved.get("format")
        words = WORDS.get(kind, kind) if isinstance(kind, str) else "any value"
        return f"{words} ({form})" if isinstance(form, str) else words

    # -- as a check ----------------------------------------------------------------------------------------

    def problems(self, payload: Any) -> list[str]:
        """The first few."""
        if payload == {} and self._takes_none():
            return []  # a job without a payload
        found: list[str] = []
        for problem in self._check(payload, self._root, "The payload", 0):
            found.append(problem)
            if len(found) == MAX_PROBLEMS:
                break
        return found

    def _takes_none(self) -> bool:
        _, shape = self._resolved(self._root)
        parts = shape.get("anyOf")
        return isinstance(parts, list) and {"type": "null"} in parts

    def _check(self, value: Any, shape: Any, where: str, depth: int) -> Iterator[str]:
        self._left -= 1
        if self._left < 0 or depth > 4 * MAX_DEPTH:
            return
        _, resolved = self._resolved(shape)
        parts = resolved.get("anyOf") or resolved.get("oneOf")
        if isinstance(parts, list) and parts:
            yield from self._check_any(value, parts, where, depth)
            return
        if "enum" in resolved and isinstance(resolved["enum"], list):
            if not any(self._equals(value, each) for each in resolved["enum"]):
                yield f"{where} must be {self.words(resolved)}."
            return
        if "const" in resolved:
            if not self._equals(value, resolved["const"]):
                yield f"{where} must be {_value(resolved['const'])}."
            return
        if not self._has_kind(value, resolved):
            yield f"{where} must be {_article(self.words(resolved))}, not {_kind(value)}."
        elif isinstance(value, dict):
            yield from self._check_object(value, resolved, where, depth)
        elif isinstance(value, list) and isinstance(resolved.get("items"), dict):
            for index, each in enumerate(value):
                yield from self._check(each, resolved["items"], f"{_path(where)}[{index}]", depth + 1)

    def _check_any(self, value: Any, parts: list[Any], where: str, depth: int) -> Iterator[str]:
        """One of several shapes. If all but one are simple, that one tells what is wrong."""
        problems = [list(self._check(value, part, where, depth + 1)) for part in parts]
        if not all(problems):
            return
        fitting = [
            found
            for part, found in zip(parts, problems, strict=True)
            if isinstance(value, dict | list) and self._has_kind(value, self._resolved(part)[1])
        ]
        if len(fitting) == 1:
            yield from fitting[0]
        else:
            words = " or ".join(dict.fromkeys(self.words(part) for part in parts[:8]))
            yield f"{where} must be {_article(words)}, not {_kind(value)}."

    def _check_object(
        self, value: dict[str, Any], shape: dict[str, Any], where: str, depth: int
    ) -> Iterator[str]:
        members, more = _mapping(shape, "properties"), shape.get("additionalProperties")
        unknown = [name for name in value if name not in members]
        # A model may also read a member by another name than its schema says.
        if not (self._is_lax and unknown):
            for name in shape.get("required") or ():
                if isinstance(name, str) and name not in value:
                    yield f"{_path(where)}.{name} is missing." if _path(where) else f"{name} is missing."
        for name, each in value.items():
            inner = f"{_path(where)}.{name}" if _path(where) else name
            if name in members:
                yield from self._check(each, members[name], inner, depth + 1)
            elif isinstance(more, dict):
                yield from self._check(each, more, inner, depth + 1)
            elif more is False:
                yield f"{inner} is not a member that the task knows."

    def _has_kind(self, value: Any, shape: dict[str, Any]) -> bool:
        kinds = shape.get("type")
        if isinstance(kinds, str):
            kinds = [kinds]
        if not isinstance(kinds, list) or not kinds:
            return True
        return any(self._is_of(value, kind, shape.get("format")) for kind in kinds)

    def _is_of(self, value: Any, kind: object, form: object) -> bool:
        if kind == "object":
            return isinstance(value, dict)
        if kind == "array":
            return isinstance(value, list)
        if kind == "null":
            return value is None
        if self._is_lax:
            return not isinstance(value, dict | list) and value is not None
        if kind == "boolean":
            return isinstance(value, bool)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if kind == "integer":
            return is_number and value == int(value)
        if kind == "number":
            return is_number
        if kind == "string":
            return isinstance(value, str) or (form == "decimal" and is_number)
        return True

    def _equals(self, value: Any, wanted: Any) -> bool:
        if self._is_lax and isinstance(value, bool | int | float | str) and type(value) is not type(wanted):
            return True  # it may be converted
        return type(value) is type(wanted) and bool(value == wanted)


def _mapping(shape: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = shape.get(name)
    return found if isinstance(found, dict) else {}


def _names(shape: Mapping[str, Any], name: str) -> set[str]:
    found = shape.get(name)
    return {each for each in found if isinstance(each, str)} if isinstance(found, list) else set()


def _default(member: Any) -> str | None:
    return _value(member["default"]) if isinstance(member, dict) and "default" in member else None


def _note(member: Any) -> str:
    note = member.get("description") if isinstance(member, dict) else None
    return note[:200] if isinstance(note, str) else ""


def _value(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 80 else text[:79] + "…"


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    return "a text" if isinstance(value, str) else "a number"


def _article(words: str) -> str:
    """A type as part of a sentence."""
    if words.startswith(("text", "whole number", "number", "list")):
        return f"a {words}"
    return f"an {words}" if words.startswith("object") else words


def _path(where: str) -> str:
    return "" if where == "The payload" else where

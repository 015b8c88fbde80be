"""The payload that a task expects, in words and as JSON Schema, for people who look at its jobs."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from ..database.statements.inspection import MAX_SCHEMA_LENGTH, MAX_TYPE_LENGTH, TaskDescription
from ..errors import TaskLoadError
from .task import AnyTask

_MODULES = re.compile(r"""(?<![\w.'"])(?:[A-Za-z_<][\w<>]*\.)+""")


def description_of(task: AnyTask) -> TaskDescription:
    """What a worker says about the task."""
    annotation: Any = Any
    if task._takes_payload:
        try:
            annotation = task.payload_annotation
        except TaskLoadError:
            annotation = Any  # the worker says so elsewhere, and has not started
    is_any = annotation in (Any, object)
    return TaskDescription(
        runbook=task.runbook,
        owner=task.owner,
        payload_type=None if is_any else _stored(_name(annotation), MAX_TYPE_LENGTH, cut=True),
        payload_schema=None if is_any else _stored(_schema(annotation), MAX_SCHEMA_LENGTH),
    )


def _name(annotation: Any) -> str:
    """The annotation as it is written, without the modules of names."""
    if isinstance(annotation, type) and not getattr(annotation, "__args__", ()):
        return annotation.__name__
    return _MODULES.sub("", str(annotation))


def _schema(annotation: Any) -> str | None:
    """Its JSON Schema; None if it has none."""
    try:
        return msgspec.json.encode(_json_schema(annotation)).decode()
    except Exception:  # hooks of users' own types may raise anything; the payload is decoded without a schema
        return None


def _json_schema(annotation: Any) -> Any:
    own = getattr(annotation, "model_json_schema", None)
    if own is not None:
        return {**own(), "x-lax": True}
    try:
        return msgspec.json.schema(annotation, schema_hook=_schema_of_foreign)
    except TypeError:
        from pydantic import TypeAdapter

        return {**TypeAdapter(annotation).json_schema(), "x-lax": True}


def _schema_of_foreign(annotation: Any) -> dict[str, Any]:
    """Of types that msgspec does not know: anything."""
    return {}


def _stored(text: str | None, longest: int, *, cut: bool = False) -> str | None:
    """The text if it can be stored: PostgreSQL has no NUL, and long ones are of no use to a reader."""
    if text is None or "\0" in text or "\\u0000" in text:
        return None
    if len(text) > longest:
        return text[: longest - 1] + "…" if cut else None
    return text.encode("utf-8", "replace").decode()

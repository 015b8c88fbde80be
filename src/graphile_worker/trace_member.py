"""The member `_trace` of a payload: where the job was added, for tracing.

The Rust port writes it with three members: `flags`, `trace_id` and `span_id`. An object payload has one; in
an array each object may have its own. Tasks never see it, whether tracing is installed here or not, because
another program may have added the job. Jobs and hooks keep it.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

NAME = "_trace"
MARK = f'"{NAME}"'
"""Payloads without this text have no such member, which spares them from being decoded."""

# The member as adds write it, in front of the others: cutting it out then takes no decoding.
_LEADING = re.compile(
    r'\{"_trace":\{"flags":[0-9]{1,3},"trace_id":"[0-9a-f]{32}","span_id":"[0-9a-f]{16}"\}(?:,|(?=\}))'
)
_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
_items = msgspec.json.Decoder(list[msgspec.Raw])


def without_trace(raw: str) -> str:
    """The payload, as JSON text, as its task gets it."""
    return _cut(raw) if MARK in raw else raw


def _cut(raw: str) -> str:
    leading = _LEADING.match(raw)
    if leading is not None and raw.find(MARK, leading.end()) < 0:
        return "{" + raw[leading.end() :]
    try:
        if not raw.lstrip().startswith("["):
            return bytes(_object_without(raw)).decode()
        items = (bytes(_item_without(item)).decode() for item in _items.decode(raw))
        return f"[{','.join(items)}]"
    except msgspec.DecodeError:  # the task's own decoder says what is wrong
        return raw


def _item_without(item: msgspec.Raw) -> msgspec.Raw | bytes:
    return _object_without(item) if MARK.encode() in bytes(item) else item


def _object_without(raw: str | msgspec.Raw) -> msgspec.Raw | bytes:
    """An object without the member; other values as they are."""
    try:
        members = _members.decode(raw)
    except msgspec.ValidationError:
        return msgspec.Raw(raw)
    if not is_trace(_decoded(members.get(NAME))):
        return msgspec.Raw(raw)
    del members[NAME]
    return msgspec.json.encode(members)


def traces_in(raw: str) -> list[dict[str, Any]]:
    """The members of a payload, without repetitions: at most one, or those of the items of an array."""
    if MARK not in raw:
        return []
    try:
        value = msgspec.json.decode(raw)
    except msgspec.DecodeError:
        return []
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for each in value if isinstance(value, list) else (value,):
        trace = each.get(NAME) if isinstance(each, dict) else None
        if isinstance(trace, dict) and is_trace(trace):
            found.setdefault((trace["trace_id"], trace["span_id"]), trace)
    return list(found.values())


def with_trace(raw: str, trace: str) -> str:
    """The payload with this member, a JSON text, in every object that has none.

    Scalar values carry no member, and one that is there stays.
    """
    if raw.startswith("{") and MARK not in raw:
        return f"{{{MARK}:{trace}}}" if raw == "{}" else f"{{{MARK}:{trace},{raw[1:]}"
    if raw.startswith("["):
        items = (bytes(item).decode() for item in _items.decode(raw))
        return f"[{','.join(with_trace(item, trace) for item in items)}]"
    if not raw.startswith("{"):
        return raw
    members = _members.decode(raw)
    if NAME in members:
        return raw
    return msgspec.json.encode({NAME: msgspec.Raw(trace), **members}).decode()


def is_trace(value: object) -> bool:
    """Whether this is a member that tracing wrote, rather than a value of the application by this name."""
    return (
        isinstance(value, dict)
        and isinstance(value.get("trace_id"), str)
        and isinstance(value.get("span_id"), str)
    )


def _decoded(raw: msgspec.Raw | None) -> object:
    return None if raw is None else msgspec.json.decode(raw)

"""Payloads: from Python values to JSON text, and from JSON text to the type that a task wants.

`encode` accepts everything that msgspec does (plain values, dataclasses, structs, datetime, UUID, Decimal,
enums…), mappings, and pydantic models. pydantic is imported only if a payload or an annotation uses it.

Rejected, because PostgreSQL or other runtimes could not read it back: NaN and infinities, half surrogate
pairs (JavaScript writes them when it cuts an emoji in two), and NUL characters (`json` columns store them,
but merging two array payloads or reading the value with `->>` fails later, far from the cause).

The member `_trace` of a payload says where the job was added, for tracing. The Rust port writes it with three
members: `flags`, `trace_id` and `span_id`. An object payload has one; in an array each object may have its
own. Tasks never see it, whether tracing is installed here or not, because another program may have added the
job. Jobs and hooks keep it.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import UnionType
from typing import Any, Union, get_args, get_origin

import msgspec

from ..errors import InvalidArgumentError, PayloadError, TaskLoadError

MAX_PAYLOAD_BYTES = 256 * 1024 * 1024
EMPTY = "{}"
"""The payload of a job that was added without one."""

Decode = Callable[[str | bytes], Any]


def encode(payload: object) -> str:
    """The payload as JSON text; None becomes an empty object."""
    if payload is None:
        return EMPTY
    try:
        raw = _encoder.encode(payload)
    except (RecursionError, TypeError, ValueError, OverflowError) as error:
        raise _encode_error(payload, error) from (None if isinstance(error, RecursionError) else error)
    return _as_text(raw, payload)


def encode_all(payloads: Sequence[object]) -> list[str]:
    """The same for many, in half the time."""
    encode_one = _encoder.encode
    try:
        raws = [b"{}" if payload is None else encode_one(payload) for payload in payloads]
    except Exception:
        return [encode(payload) for payload in payloads]  # slow path: raises an error that names the item
    joined = b"\n".join(raws)
    if b"null" not in joined and b"\\u0000" not in joined and len(joined) <= MAX_PAYLOAD_BYTES:
        texts = joined.decode().split("\n")
        if len(texts) == len(raws):  # else a custom encoding contains line breaks
            return texts
    return [_as_text(raw, payload) for raw, payload in zip(raws, payloads, strict=True)]


def _encode_error(payload: object, error: Exception) -> InvalidArgumentError:
    if isinstance(error, RecursionError):
        return InvalidArgumentError("payload", "contains itself, or is nested too deeply for JSON")
    return InvalidArgumentError("payload", _explain(payload, error))


def _as_text(raw: bytes, payload: object) -> str:
    # msgspec writes NaN and infinities as null, and NUL as an escape: only then check the values.
    if b"null" in raw or b"\\u0000" in raw:
        _reject_unreadable(payload)
    if len(raw) > MAX_PAYLOAD_BYTES:
        raise InvalidArgumentError(
            "payload", f"has {len(raw):,} bytes as JSON; at most {MAX_PAYLOAD_BYTES:,} are allowed"
        )
    return raw.decode()


def decoder_for(annotation: Any) -> Decode:
    """A function that decodes JSON text to `annotation`, or raises PayloadError, which names the field."""
    if annotation in (Any, object, None):
        return decode_plain
    if hasattr(annotation, "model_validate_json"):
        return _guard_pydantic(annotation.model_validate_json, annotation)
    try:
        decoder = msgspec.json.Decoder(annotation, dec_hook=_decode_foreign)
    except (TypeError, NameError) as error:
        if _mentions_pydantic(annotation):
            from pydantic import TypeAdapter

            return _guard_pydantic(TypeAdapter(annotation).validate_json, annotation)
        raise TaskLoadError(f"payloads cannot be decoded to {_name(annotation)}: {error}") from error

    def decode(text: str | bytes) -> Any:
        try:
            return decoder.decode(text)
        except msgspec.DecodeError as error:
            problem = half_surrogate_in(text) or error
            raise PayloadError(f"payload does not fit {_name(annotation)}: {problem}") from error

    return decode


def decode_plain(text: str | bytes) -> Any:
    """Decode JSON text of any shape. Raises PayloadError."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        half = half_surrogate_in(text)
        message = f"payload cannot be read: {half}" if half else f"payload is not valid JSON: {error}"
        raise PayloadError(message) from error


def types_that_fit(annotation: Any) -> frozenset[type]:
    """Classes whose instances fit the annotation as they are, so that checking them takes no decoding."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        return frozenset().union(*map(types_that_fit, arguments))
    if origin in (dict, Mapping) and arguments in ((str, Any), (str, object)):
        return frozenset({dict})
    is_fit = isinstance(annotation, type) and annotation is not type(None)  # None becomes an empty object
    return frozenset({annotation}) if is_fit else frozenset()


# -- values that msgspec does not know ---------------------------------------------------------------------


def _encode_foreign(value: Any) -> Any:
    """Called by msgspec for values of unknown types; returns what to encode instead."""
    dump = getattr(value, "model_dump_json", None)
    if dump is not None and not isinstance(value, type):
        return msgspec.Raw(dump(by_alias=True).encode())  # the names that the model reads
    if isinstance(value, Mapping):
        return dict(value)
    for base in (str, bool, int, float):  # subclasses of the plain types
        if isinstance(value, base):
            return base(value)
    raise TypeError(f"{_name(type(value))} is not JSON-serialisable")


def _decode_foreign(annotation: Any, value: Any) -> Any:
    """Called by msgspec for unknown types, such as a pydantic model inside a dataclass."""
    validate = getattr(annotation, "model_validate", None)
    if validate is None:
        if isinstance(annotation, type) and isinstance(value, annotation):
            return value
        raise TypeError(f"{_name(annotation)} is not a type that payloads can have")
    try:
        return validate(value)
    except ValueError as error:
        raise ValueError(_first_problem(error, "in {}")) from error  # msgspec adds the path


def _guard_pydantic(validate: Callable[[str | bytes], Any], annotation: Any) -> Decode:
    def decode(text: str | bytes) -> Any:
        try:
            return validate(text)
        except ValueError as error:
            problem = half_surrogate_in(text) or _first_problem(error)
            raise PayloadError(f"payload does not fit {_name(annotation)}: {problem}") from error

    return decode


def _first_problem(error: ValueError, where: str = "- at `${}`") -> str:
    """The first problem of a pydantic error, in one line, with its path."""
    problems = error.errors() if hasattr(error, "errors") else []
    if not problems:
        return str(error)
    first = problems[0]
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"])
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"{first['msg']} {where.format(place)}{more}"


def _mentions_pydantic(annotation: Any) -> bool:
    if hasattr(annotation, "__pydantic_validator__"):
        return True
    return any(_mentions_pydantic(part) for part in getattr(annotation, "__args__", ()))


def _name(annotation: Any) -> str:
    return annotation.__qualname__ if isinstance(annotation, type) else str(annotation)


_encoder = msgspec.json.Encoder(enc_hook=_encode_foreign)


# -- error messages ----------------------------------------------------------------------------------------


def _explain(payload: object, error: Exception) -> str:
    """The path of the first value that cannot be encoded, and why; called only after encoding failed."""
    for path, value in _walk(payload, "$"):
        try:
            _encoder.encode(value)
        except UnicodeEncodeError:
            return f"contains half a surrogate pair at {path}, which is not valid text"
        except (TypeError, ValueError, OverflowError) as problem:
            return f"cannot be encoded as JSON at {path}: {problem}"
    return f"cannot be encoded as JSON: {error}"


def _reject_unreadable(payload: object) -> None:
    for path, value in _walk(payload, "$"):
        if isinstance(value, float) and not math.isfinite(value):
            raise InvalidArgumentError("payload", f"{value} at {path} is not a JSON number")
        if isinstance(value, str) and "\0" in value:
            raise InvalidArgumentError(
                "payload", f"contains a NUL character at {path}, which PostgreSQL cannot turn into text"
            )


def _walk(value: object, path: str) -> Iterator[tuple[str, Any]]:
    """Every nested value with its path, innermost first."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if isinstance(key, str):
                yield f"a key of {path}", key
            elif isinstance(key, bool) or not isinstance(key, int | float):
                yield f"a key of {path}", {key: None}
            yield from _walk(inner, f"{path}.{key}")
    elif isinstance(value, list | tuple | set | frozenset):
        for index, inner in enumerate(value):
            yield from _walk(inner, f"{path}[{index}]")
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            yield from _walk(getattr(value, name), f"{path}.{name}")
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from _walk(getattr(value, field.name, None), f"{path}.{field.name}")
    elif hasattr(value, "model_dump") and not isinstance(value, type):
        yield from _walk(value.model_dump(), path)
        return
    yield path, value


# Matches every escape as a whole, so that \ud800 after an escaped backslash is not mistaken for one.
# Compiled on first use, because most programs never need it.
_ESCAPE = (
    r"(?s)\\(?:u(?P<high>[dD][89abAB][0-9a-fA-F]{2})(?P<pair>\\u[dD][c-fC-F][0-9a-fA-F]{2})?"
    r"|u(?P<low>[dD][c-fC-F][0-9a-fA-F]{2})|.)"
)


def half_surrogate_in(json_text: str | bytes) -> str | None:
    """A message about the first lone surrogate in JSON text that cannot be decoded; None if there is none."""
    text = json_text.decode(errors="replace") if isinstance(json_text, bytes) else json_text
    for escape in re.finditer(_ESCAPE, text):
        half = escape["low"] or (None if escape["pair"] else escape["high"])
        if half is not None:
            return (
                rf"it contains half a surrogate pair, \u{half}, at character {escape.start() + 1}, which is "
                "not valid text; JavaScript writes such a string when it cuts an emoji in two"
            )
    return None


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

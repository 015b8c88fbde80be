"""Text, arrays and parameters as servers and drivers take them.

- `fit_to_server` fits text to the server's encoding: a LATIN1 database refuses a whole statement for one "€".
- `teach_arrays` registers array types with the driver, so that it does not query the catalogue for them. Its
  query has unqualified names: `typelem != 0` compares an oid with an integer, for which PostgreSQL has no
  exact operator, so one that another role created in `public` would run with our permissions. The query
  would also cost each new session a round trip. The oids are fixed: they are part of PostgreSQL's protocol.
- `pyformat` and `named` are SQL text for drivers that do not take `$1` parameters.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from typing import Any

from .connection import Connection

_UNRESTRICTED = ("UTF8", "SQL_ASCII", "")
_NAMES = {"EUC_CN": "gb2312", "KOI8R": "koi8-r", "KOI8U": "koi8-u", "UHC": "cp949"}


def fit_to_server(connection: Connection, text: str) -> str:
    """Replace each character that the database cannot store with a question mark."""
    encoding = _codec_of(connection)
    return text if encoding is None else text.encode(encoding, "replace").decode(encoding)


def stores_every_text(connection: Connection) -> bool:
    """Whether `fit_to_server` returns every text as it is: as with UTF-8, which most databases have."""
    return _codec_of(connection) is None


def _codec_of(connection: Connection) -> str | None:
    return server_codec(getattr(connection.get_settings(), "server_encoding", ""))


@cache
def server_codec(name: str) -> str | None:
    """Python's codec for a PostgreSQL encoding; None if it can store every character, ASCII if unknown."""
    if name.upper() in _UNRESTRICTED:
        return None
    wanted = _NAMES.get(name.upper(), name.replace("WIN", "cp", 1) if name.startswith("WIN") else name)
    try:
        return codecs.lookup(wanted).name
    except LookupError:
        return "ascii"


_ARRAYS = (  # oid, name, oid and name of the element's type
    (1000, "_bool", 16, "boolean"),
    (1005, "_int2", 21, "smallint"),
    (1007, "_int4", 23, "integer"),
    (1016, "_int8", 20, "bigint"),
    (1022, "_float8", 701, "double precision"),
    (1185, "_timestamptz", 1184, "timestamp with time zone"),
)
_TYPES = tuple(
    {
        "oid": oid, "ns": "pg_catalog", "name": name, "kind": b"b", "basetype": None, "elemtype": element,
        "elemdelim": b",", "range_subtype": None, "attrtypoids": None, "attrnames": None, "depth": 0,
        "basetype_name": None, "elemtype_name": element_name, "range_subtype_name": None,
    }
    for oid, name, element, element_name in _ARRAYS
)  # fmt: skip


def teach_arrays(connection: Any) -> None:
    """Register the types. If the driver's internals have changed, it queries the catalogue instead."""
    with suppress(AttributeError, KeyError, TypeError):
        connection._protocol.get_settings().register_data_types(_TYPES)


def array_text(values: Iterable[str]) -> str:
    """The literal of a PostgreSQL text array."""
    quoted = (value.replace("\\", "\\\\").replace('"', '\\"') for value in values)
    return "{" + ",".join(f'"{value}"' for value in quoted) + "}"


_QUOTED = r"""'(?:[^']|'')*'|"(?:[^"]|"")*\""""
_COMMENT = re.compile(rf"({_QUOTED})|\s*--[^\n]*")
_PARAMETER = re.compile(rf"({_QUOTED})|\$([0-9]+)")


def without_comments(sql: str) -> str:
    """The statement without its comments; not for texts that define functions."""
    return _COMMENT.sub(lambda match: match[1] or "", sql).strip()


@cache
def pyformat(sql: str) -> str:
    """The statement with `%(p1)s` in place of `$1`, without comments.

    A driver that substitutes values into the text would write them into comments, where a line break in a
    value ends the comment and the rest runs as SQL. Parentheses, because `-1::smallint` is `-(1::smallint)`.
    """
    text = without_comments(sql).replace("%", "%%")
    return _PARAMETER.sub(lambda match: match[1] or f"(%(p{match[2]})s)", text)


def named(arguments: tuple[object, ...]) -> dict[str, object]:
    """The arguments under the names that `pyformat` gives them."""
    return {f"p{number}": value for number, value in enumerate(arguments, 1)}

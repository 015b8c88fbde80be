"""Fits text to the server's encoding: a LATIN1 database refuses a whole statement for one "€"."""

from __future__ import annotations

import codecs
from functools import cache

from .connection import Connection

_UNRESTRICTED = ("UTF8", "SQL_ASCII", "")
_NAMES = {"EUC_CN": "gb2312", "KOI8R": "koi8-r", "KOI8U": "koi8-u", "UHC": "cp949"}


def fit_to_server(connection: Connection, text: str) -> str:
    """Replace each character that the database cannot store with a question mark."""
    encoding = server_codec(getattr(connection.get_settings(), "server_encoding", ""))
    return text if encoding is None else text.encode(encoding, "replace").decode(encoding)


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

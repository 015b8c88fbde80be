"""Encodings of the server, by the names that Python has for them."""

from __future__ import annotations

import pytest

from graphile_worker.db.encoding import server_codec


@pytest.mark.parametrize(
    ("name", "codec"),
    [
        ("UTF8", None), ("SQL_ASCII", None), ("", None), ("LATIN1", "iso8859-1"), ("LATIN9", "iso8859-15"),
        ("WIN1252", "cp1252"), ("WIN866", "cp866"), ("KOI8R", "koi8-r"), ("ISO_8859_5", "iso8859-5"),
        ("EUC_JP", "euc_jp"), ("EUC_CN", "gb2312"), ("EUC_TW", "ascii"), ("MULE_INTERNAL", "ascii"),
    ],
)  # fmt: skip
def test_encodings_of_the_server_are_known(name: str, codec: str | None) -> None:
    assert server_codec(name) == codec

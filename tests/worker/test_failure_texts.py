"""Failures have texts of bounded size, even if the exception's own methods fail."""

from __future__ import annotations

from typing import Any

import pytest

from graphile_worker.database.connections.encoding import server_codec
from graphile_worker.errors import BatchFailureError
from graphile_worker.errors.text import (
    MAX_MESSAGE,
    MAX_TRACEBACK,
    describe,
    format_traceback,
    related,
    storable,
)
from graphile_worker.values.outcome import failed


class Explosive(Exception):
    """Raises in every method that describes it."""

    def __init__(self, raises: BaseException) -> None:
        super().__init__("fine")
        self.__dict__["raises"] = raises

    def __str__(self) -> str:
        raise self.__dict__["raises"]

    __repr__ = __str__

    @property
    def args(self) -> Any:  # type: ignore[override]
        raise self.__dict__["raises"]


class TextError(Exception):
    def __str__(self) -> Any:
        return self.text

    text: Any = 5


class OddText(str):
    """A str subclass whose methods fail."""

    def __getitem__(self, key: Any) -> Any:
        raise IndexError

    def replace(self, *_: Any) -> Any:
        raise ValueError

    __len__ = __bool__ = __format__ = encode = replace  # type: ignore[assignment]


def odd_text() -> TextError:
    error = TextError()
    error.text = OddText("odd")
    return error


def ring() -> Exception:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    return first


def chain(length: int) -> Exception:
    error = ValueError("0")
    for number in range(1, length):
        next_one = ValueError(str(number))
        next_one.__cause__ = error
        error = next_one
    return error


def deep() -> Exception:
    def descend(depth: int) -> None:
        if depth == 0:
            raise ValueError("deep down")
        descend(depth - 1)

    try:
        descend(400)
    except ValueError as error:
        return error
    raise AssertionError


ERRORS = {
    "a broken text": Explosive(LookupError("no")),
    "an exit in the text": Explosive(SystemExit(3)),
    "an interrupt in the text": Explosive(KeyboardInterrupt()),
    "a text that raises the error itself": Explosive(Explosive(RecursionError())),
    "no text at all": TextError(),
    "an odd text": odd_text(),
    "megabytes": ValueError("x" * 3_000_000),
    "megabytes of lines": ValueError("\n" * 3_000_000),
    "no characters": ValueError("a\0b\ud83d"),
    "a ring of causes": ring(),
    "a long chain": chain(5000),
    "a broken cause": ExceptionGroup("all", [Explosive(OSError()), ValueError("one")]),
    "a large group": ExceptionGroup("all", [ValueError(str(n)) for n in range(10_000)]),
    "a deep stack": deep(),
    "a batch of many": BatchFailureError([Explosive(OSError())] + [ValueError("x" * 10_000)] * 5_000),
}


@pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS)
def test_every_error_has_texts_of_bounded_size(error: BaseException) -> None:
    for text, most in ((describe(error), MAX_MESSAGE), (format_traceback(error), MAX_TRACEBACK + 100)):
        assert type(text) is str
        assert 0 < len(text) <= most
        stored = storable(text)
        assert "\0" not in stored
        stored.encode()
    outcome = failed(error, (error, error))
    assert outcome.error is error
    assert outcome.weight > 0
    outcome.drop_frames()
    assert all(each.__traceback__ is None for each in related(error))


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

"""The text of an error: bounded in size, and made without ever raising.

An exception is code of somebody else. Its `__str__` may raise, return megabytes, or characters that no
database stores; its causes may form a ring. Nothing that handles a failed job may fail because of that.
"""

from __future__ import annotations

import linecache
from collections.abc import Iterator
from types import TracebackType

MAX_MESSAGE = 20_000  # characters; a longer message helps nobody, and each fetch of the job brings it along
MAX_TRACEBACK = 20_000  # characters
MAX_FRAMES = 40  # per exception: the innermost ones
MAX_CHAIN = 8  # exceptions of one traceback: causes, contexts and members of groups
MAX_TRACEBACK_MESSAGE = 2_000  # characters of each message in a traceback

_CAUSE = "\nThe above exception was the direct cause of the following exception:\n\n"
_CONTEXT = "\nDuring handling of the above exception, another exception occurred:\n\n"


def describe(error: BaseException) -> str:
    """The text stored as a job's `last_error`: the message, else the type's name."""
    return _message(error, MAX_MESSAGE) or _type_name(error)


def storable(text: str) -> str:
    """The text in a form that PostgreSQL can store: no NUL, no lone surrogates, not too long."""
    text = text[:MAX_MESSAGE].replace("\0", "\N{REPLACEMENT CHARACTER}")
    return text.encode("utf-8", "replace").decode("utf-8")


def format_traceback(error: BaseException) -> str:
    """The traceback as Python prints it, with its causes; of bounded size."""
    try:
        text = "".join(_chain(error, set()))
    except BaseException:
        text = f"{_type_name(error)}: {_message(error, MAX_TRACEBACK_MESSAGE)}"
    if len(text) > MAX_TRACEBACK:
        half = MAX_TRACEBACK // 2
        text = f"{text[:half]}\n[…]\n{text[-half:]}"
    return text


def related(error: BaseException) -> Iterator[BaseException]:
    """The error, its causes and contexts and the members of its groups, each once."""
    waiting, seen = [error], set()
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        waiting += _next_to(each)


def drop_frames(error: BaseException) -> None:
    """Let go of the frames of an error and of all that belong to it: they keep every local variable alive."""
    for each in related(error):
        try:
            BaseException.with_traceback(each, None)
        except BaseException:  # noqa: S112 - a class may forbid to set it
            continue


def _next_to(error: BaseException) -> list[BaseException]:
    try:
        found = [error.__cause__, error.__context__]
        if isinstance(error, BaseExceptionGroup):
            found += error.exceptions
        return [each for each in found if isinstance(each, BaseException)]
    except BaseException:
        return []


def _message(error: BaseException, limit: int) -> str:
    """What `str` says, cut to size; a plain `str` whatever `__str__` returned."""
    try:
        return str.__getitem__(str(error), slice(limit))
    except BaseException as broken:
        return f"{_type_name(error)} (its message could not be read: {_type_name(broken)})"


def _type_name(error: BaseException) -> str:
    try:
        return str.__getitem__(type(error).__name__, slice(200))
    except BaseException:
        return "Exception"


def _chain(error: BaseException, seen: set[int]) -> Iterator[str]:
    if id(error) in seen or len(seen) >= MAX_CHAIN:
        return
    seen.add(id(error))
    if error.__cause__ is not None:
        yield from _chain(error.__cause__, seen)
        yield _CAUSE
    elif error.__context__ is not None and not error.__suppress_context__:
        yield from _chain(error.__context__, seen)
        yield _CONTEXT
    if error.__traceback__ is not None:
        yield "Traceback (most recent call last):\n"
        yield from _frames(error.__traceback__)
    message = _message(error, MAX_TRACEBACK_MESSAGE)
    yield f"{_type_name(error)}: {message}\n" if message else f"{_type_name(error)}\n"
    if isinstance(error, BaseExceptionGroup):
        for number, member in enumerate(error.exceptions, 1):
            if len(seen) >= MAX_CHAIN:
                yield f"\n[{len(error.exceptions) - number + 1} more]\n"
                return
            yield f"\nException {number} of {len(error.exceptions)} in the group:\n"
            yield from _chain(member, seen)


def _frames(traceback: TracebackType | None) -> list[str]:
    lines: list[str] = []
    while traceback is not None:
        code = traceback.tb_frame.f_code
        line = linecache.getline(code.co_filename, traceback.tb_lineno, traceback.tb_frame.f_globals)
        place = f'  File "{code.co_filename}", line {traceback.tb_lineno}, in {code.co_name}\n'
        lines.append(f"{place}    {line.strip()[:200]}\n" if line.strip() else place)
        if len(lines) > MAX_FRAMES:
            del lines[0]
        traceback = traceback.tb_next
    return lines

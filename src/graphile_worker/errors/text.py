"""The text of an exception: for `last_error`, the log and the terminal.

The text of an error for `last_error`, the log and the terminal: bounded in size, built without raising.

An exception is foreign code. Its `__str__` may raise or return megabytes, its causes may form a cycle, a
group may have a million members. None of this may break the handling of a failed job, so every access to an
exception is guarded and bypasses what a subclass overrides.

Users want to see their own code. Frames of this package and of its callers, the event loop and threads, are
folded.

Safe access to one exception: its name, message, causes and frames.

Every access is guarded and bypasses what a subclass overrides; see `error_text`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, islice
from types import CodeType, TracebackType
from typing import Any

MAX_MESSAGE = 20_000  # characters of a description; every fetch of the job returns it
MAX_PART = 2_000  # characters of a cause, a note, or a message in a traceback
MAX_NOTES = 20
MAX_LOCATION = 500

PACKAGE = __name__.partition(".")[0]
PACKAGE_FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")
_LIBRARY_FOLDER = os.path.join(os.path.dirname(os.__file__), "")
_CALLERS_OF_TASKS = tuple(
    _LIBRARY_FOLDER + name for name in ("asyncio", "concurrent", "threading.py", "contextlib.py")
)
_SITES = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")


# -- one exception -----------------------------------------------------------------------------------------


def headline_of(error: BaseException, limit: int) -> str:
    """`KeyError: 'sku'`, as Python prints it; the message alone for errors that only this package raised."""
    message = text_of(error, limit)
    if is_ours(error) and message and own_frame_of(error) is None:
        return message
    name = qualified_name(error)
    return cut(f"{name}: {message}", limit) if message else name


def text_of(error: BaseException, limit: int) -> str:
    """The message, cut to size; a plain `str`, whatever `__str__` returns."""
    try:
        text = str(error)
        return cut(str.__getitem__(text, slice(limit + 1)), limit)
    except BaseException as broken:
        return f"<its message cannot be read: __str__ raised {qualified_name(broken)}>"


def type_name(error: BaseException) -> str:
    """The name of the error's class, without its module."""
    return qualified_name(error).rpartition(".")[2]


def qualified_name(error: BaseException) -> str:
    """The name as Python prints it: with the module, except `builtins` and `__main__`, and ours without."""
    try:
        kind = type(error)
        name, module = str.__getitem__(kind.__qualname__, slice(200)), kind.__module__
        if not isinstance(module, str) or module in ("builtins", "__main__") or is_ours(error):
            return name
        return f"{str.__getitem__(module, slice(200))}.{name}"
    except BaseException:
        return "Exception"


def notes_of(error: BaseException) -> list[str]:
    """The lines of all notes."""
    try:
        notes = getattr(error, "__notes__", None)
        if not isinstance(notes, list | tuple):
            return []
        return [
            line
            for note in notes[:MAX_NOTES]
            for line in str.__getitem__(str(note), slice(MAX_PART)).split("\n")
        ]
    except BaseException:
        return []


def is_ours(error: BaseException) -> bool:
    """Whether the class of the error belongs to this package."""
    try:
        module = type(error).__module__
        return isinstance(module, str) and module.partition(".")[0] == PACKAGE
    except BaseException:
        return False


def is_a(error: BaseException, kind: type[BaseException]) -> bool:
    """Like `isinstance`, but ignores an overridden `__class__`."""
    return issubclass(type(error), kind)


# Read as the interpreter does, bypassing a property of the same name.


def cause_of(error: BaseException) -> BaseException | None:
    return _raw(BaseException, "__cause__", error)  # type: ignore[no-any-return]


def context_of(error: BaseException) -> BaseException | None:
    return _raw(BaseException, "__context__", error)  # type: ignore[no-any-return]


def suppresses_context(error: BaseException) -> bool:
    return bool(_raw(BaseException, "__suppress_context__", error))


def members_of(error: BaseException) -> Sequence[BaseException]:
    """The exceptions of a group or of a batch."""
    if is_a(error, BaseExceptionGroup):
        members = _raw(BaseExceptionGroup, "exceptions", error)
    else:
        members = getattr(error, "errors", ()) if is_ours(error) else ()
    return members if isinstance(members, tuple) else ()


def _raw(owner: type, name: str, error: BaseException) -> Any:
    return owner.__dict__[name].__get__(error, type(error))


# -- frames ------------------------------------------------------------------------------------------------


def frames_of(error: BaseException) -> Iterator[TracebackType]:
    traceback: TracebackType | None = _raw(BaseException, "__traceback__", error)
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next


def filename_of(frame: TracebackType) -> str:
    return frame.tb_frame.f_code.co_filename


def place_of(error: BaseException) -> str:
    """`at tasks/orders.py, line 12, in ship`: the innermost frame of user code; empty if there is none."""
    frame = own_frame_of(error)
    if frame is None:
        return ""
    code = frame.tb_frame.f_code
    place = f"at {short_path(code.co_filename)}, line {frame.tb_lineno}, in {code.co_name}"
    return on_one_line(place[:MAX_LOCATION])


def own_frame_of(error: BaseException) -> TracebackType | None:
    """The innermost frame of user code.

    Libraries do not count, unless the task itself is in a library: then that is the user's program.
    """
    program: str | None = None
    found: TracebackType | None = None
    for frame in frames_of(error):
        name = filename_of(frame)
        if name.startswith(PACKAGE_FOLDER):
            continue
        if program is None and not is_above_tasks(name):
            program = _distribution(name)
        if program is not None and (name.startswith(program) or not _is_library(name)):
            found = frame
    return found


def is_above_tasks(filename: str) -> bool:
    """Whether a frame belongs to the callers of tasks: this package, the event loop, threads."""
    return filename.startswith((PACKAGE_FOLDER, *_CALLERS_OF_TASKS))


def _is_library(filename: str) -> bool:
    return filename.startswith((_LIBRARY_FOLDER, "<frozen ")) or any(site in filename for site in _SITES)


def _distribution(filename: str) -> str:
    """The folder of the installed package that contains the file; else the file itself."""
    for site in _SITES:
        before, found, after = filename.rpartition(site)
        if found:
            return before + found + "".join(after.partition(os.sep)[:2])
    return filename


def short_path(filename: str) -> str:
    try:
        here = os.path.join(os.getcwd(), "")
    except OSError:  # the folder was deleted
        return filename
    return filename.removeprefix(here)


# -- text --------------------------------------------------------------------------------------------------


def cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def on_one_line(text: str) -> str:
    return " | ".join(stripped for line in text.splitlines() if (stripped := line.strip()))


def storable(text: str, limit: int = MAX_MESSAGE) -> str:
    """The text for the database and for streams: no NUL, no lone surrogates, bounded length."""
    text = cut(text, limit)
    try:
        text.encode()
    except UnicodeEncodeError:
        text = text.encode("utf-8", "backslashreplace").decode()
    return cut(text.replace("\0", "\\x00"), limit)


MAX_TRACEBACK = 20_000  # characters
MAX_LINE = 300  # characters of a line of source code in a traceback
MAX_SUMMARY = 1_000  # characters of an error on one line
MAX_FRAMES = 40  # per exception, most of them the innermost
OUTER_FRAMES = 10  # how many of those are the outermost
MAX_CHAIN = 8  # causes of one exception
MAX_WIDTH = 15  # members shown of a group, as in Python
MAX_DEPTH = 10  # groups within groups, as in Python
MAX_EXCEPTIONS = 50  # in one traceback
MAX_REPEATS = 3  # of a recursive frame, as in Python
MAX_CACHED = 500  # texts of frames

_frame_texts: dict[tuple[int, int], tuple[CodeType, str]] = {}  # holds the code, so that its id is not reused
_stacks: dict[tuple[int, ...], tuple[list[CodeType], str, tuple[str, str] | None]] = {}  # the same
_CAUSE = "The above exception was the direct cause of the following exception:"
_CONTEXT = "During handling of the above exception, another exception occurred:"


# -- interface ---------------------------------------------------------------------------------------------


def describe(error: BaseException) -> str:
    """The text for `last_error`: type and message as Python prints them, then where it was raised.

    For an error of this package that no user code raised, only the message.
    """
    try:
        rest = "".join(f"\n{line}" for line in _circumstances(error))[: MAX_MESSAGE // 2]
        return storable(headline_of(error, MAX_MESSAGE - len(rest)) + rest, MAX_MESSAGE)
    except BaseException:
        return qualified_name(error)


def format_traceback(error: BaseException) -> str:
    """The traceback as Python prints it, with causes and members of groups; our frames are folded."""
    try:
        text = "\n".join(_Report().chain(error, 0))
    except BaseException:
        text = headline_of(error, MAX_PART)
    if len(text) > MAX_TRACEBACK:
        half = MAX_TRACEBACK // 2 - 20
        text = f"{text[:half]}\n[… cut …]\n{text[-half:]}"
    return storable(text, MAX_TRACEBACK)


def describe_and_format(error: BaseException) -> tuple[str, str]:
    """Both texts at once; four times as fast for exceptions without a cause or context, the usual case."""
    try:
        if _is_simple(error):
            return _simple_texts(error)
    except BaseException:  # noqa: S110 - the slow path guards each step
        pass
    return describe(error), format_traceback(error)


def summarize(error: BaseException) -> str:
    """An error on one line: type and message, cut when very long."""
    return cut(on_one_line(storable(headline_of(error, MAX_SUMMARY), MAX_SUMMARY)), MAX_SUMMARY)


def message_of(error: BaseException) -> str:
    """The message, else the name of the type; for readers who do not need the type."""
    return storable(text_of(error, MAX_MESSAGE), MAX_MESSAGE) or qualified_name(error)


def summarize_members(errors: Iterable[BaseException]) -> list[str]:
    """A line per error with the place where it was raised; a last line counts those that are left out."""
    lines: list[str] = []
    errors = list(errors)
    room = MAX_MESSAGE // 2
    for number, error in enumerate(errors):
        place = place_of(error)
        line = summarize(error) + (f" {place}" if place else "")
        room -= len(line)
        if room < 0:
            return [*lines, f"… and {len(errors) - number} more"]
        lines.append(line)
    return lines


def related(error: BaseException) -> Iterator[BaseException]:
    """The error, its causes and contexts and the members of its groups, each once."""
    if _is_simple(error):
        yield error
        return
    waiting, seen = [error], set[int]()
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        waiting += (found for found in (cause_of(each), context_of(each)) if found is not None)
        waiting += members_of(each)


def drop_frames(error: BaseException) -> None:
    """Drop the frames of an error and of all related errors: they keep every local variable alive."""
    for each in related(error):
        try:
            BaseException.with_traceback(each, None)
        except BaseException:  # noqa: S112 - a class may forbid it
            continue


# -- fast path ---------------------------------------------------------------------------------------------


def _is_simple(error: BaseException) -> bool:
    """Whether it has no cause, context or members, and is not from this package, whose texts differ."""
    return (
        cause_of(error) is None
        and context_of(error) is None
        and not issubclass(type(error), (BaseExceptionGroup, SyntaxError))
        and not is_ours(error)
    )


def _simple_texts(error: BaseException) -> tuple[str, str]:
    if notes_of(error):
        return describe(error), format_traceback(error)
    frames, own = _stack_of(error)
    rest = ""
    if own is not None:
        filename, where = own
        rest = f"\n  {on_one_line(f'at {short_path(filename)}{where}'[:MAX_LOCATION])}"
    name, message = qualified_name(error), text_of(error, MAX_MESSAGE)
    headline = f"{name}: {message}" if message else name
    description = storable(cut(headline, MAX_MESSAGE - len(rest)) + rest, MAX_MESSAGE)
    if len(headline) + len(frames) > MAX_PART + 5000:  # needs cutting in several places
        return description, format_traceback(error)
    return description, storable(frames + cut(headline, MAX_PART), MAX_TRACEBACK)


def _stack_of(error: BaseException) -> tuple[str, tuple[str, str] | None]:
    """The frames as lines of a traceback, and the location in user code; cached like `_frame_text`."""
    codes: list[CodeType] = []
    key: list[int] = []
    for frame in frames_of(error):
        codes.append(frame.tb_frame.f_code)
        key += (id(codes[-1]), frame.tb_lasti)
    known = _stacks.get(tuple(key))
    if known is None:
        lines = _frames(error)
        text = (
            "".join(f"{line}\n" for line in ("Traceback (most recent call last):", *lines)) if lines else ""
        )
        found = own_frame_of(error)
        own = None
        if found is not None:
            code = found.tb_frame.f_code
            own = code.co_filename, f", line {found.tb_lineno}, in {code.co_name}"
        known = codes, text, own
        if len(_stacks) >= MAX_CACHED:
            _stacks.clear()
        if len(codes) <= MAX_FRAMES:
            _stacks[tuple(key)] = known
    return known[1:]


# -- a description -----------------------------------------------------------------------------------------


def _circumstances(error: BaseException) -> Iterator[str]:
    """Where an error was raised, its notes, its members and its causes."""
    place = place_of(error)
    if place:
        yield f"  {place}"
    yield from notes_of(error)
    if is_a(error, BaseExceptionGroup):
        for number, leaf in enumerate(_leaves(error)):
            if number == MAX_WIDTH:
                yield "  - …"
                break
            place = place_of(leaf)
            yield f"  - {summarize(leaf)}" + (f" {place}" if place else "")
    for link, cause in islice(_causes(error), MAX_CHAIN):
        word = "caused by" if link == _CAUSE else "while handling"
        yield f"{word} {headline_of(cause, MAX_PART)}"
        place = place_of(cause)
        if place:
            yield f"  {place}"


def _leaves(group: BaseException) -> Iterator[BaseException]:
    """The errors in a group and its subgroups, in order."""
    waiting, seen = [group], set[int]()
    while waiting and len(seen) < MAX_EXCEPTIONS * MAX_WIDTH:
        error = waiting.pop()
        if id(error) in seen:
            continue
        seen.add(id(error))
        if is_a(error, BaseExceptionGroup):
            waiting += reversed(members_of(error)[: MAX_WIDTH + 1])
        else:
            yield error


def _causes(error: BaseException) -> Iterator[tuple[str, BaseException]]:
    """The causes and contexts of an error, each with the sentence that Python prints between the two."""
    seen = {id(error)}
    while True:
        cause = cause_of(error)
        found = cause if cause is not None else None if suppresses_context(error) else context_of(error)
        # Our own errors say everything themselves, unless user code caused them.
        if found is None or id(found) in seen or (is_ours(error) and own_frame_of(found) is None):
            return
        seen.add(id(found))
        yield (_CONTEXT if cause is None else _CAUSE), found
        error = found


# -- a traceback -------------------------------------------------------------------------------------------


class _Report:
    """The lines of one traceback; counts its exceptions, so that nested groups stay bounded."""

    def __init__(self) -> None:
        self._seen: set[int] = set()

    def chain(self, error: BaseException, depth: int) -> list[str]:
        """An exception after its causes."""
        chain = [("", error)]
        for link, cause in _causes(error):
            if len(chain) > MAX_CHAIN or id(cause) in self._seen:
                break
            chain.append((link, cause))
        lines: list[str] = []
        for link, each in reversed(chain):
            self._seen.add(id(each))
            lines += self._exception(each, depth)
            if link:
                lines += ["", link, ""]
        return lines

    def _exception(self, error: BaseException, depth: int) -> list[str]:
        frames, members = _frames(error), members_of(error)
        text = _exception_lines(error)
        if not members:
            return [*(["Traceback (most recent call last):"] if frames else []), *frames, *text]
        if is_ours(error):  # a batch: the rest of its message repeats the members
            text = text[:1]
        lines = [f"  | {line}" for line in (*frames, *text)]
        if frames:
            lines.insert(0, "  + Exception Group Traceback (most recent call last):")
        return lines + self._group(members, depth)

    def _group(self, members: Sequence[BaseException], depth: int) -> list[str]:
        lines: list[str] = []
        for number, member in enumerate(members, 1):
            title, inner = str(number), []
            left_out = number > MAX_WIDTH or depth >= MAX_DEPTH or len(self._seen) >= MAX_EXCEPTIONS
            if left_out:
                title, inner = "...", [f"and {len(members) - number + 1} more"]
            elif id(member) in self._seen:
                inner = [f"{summarize(member)} (see above)"]
            else:
                inner = self.chain(member, depth + 1)
            corner = "  +-+" if number == 1 else "    +"
            lines.append(f"{corner}---------------- {title} ----------------")
            lines += [f"    | {line}" for line in inner]
            if left_out:
                break
        return [*lines, "    +------------------------------------"]


def _frames(error: BaseException) -> list[str]:
    """The relevant frames, as Python prints them; none for an error that is entirely our own."""
    frames = list(frames_of(error))
    while frames and is_above_tasks(filename_of(frames[0])):
        frames.pop(0)
    if not frames and not is_ours(error):
        # A fault of this package: show everything.
        shown: list[TracebackType | str] = list(frames_of(error))
    else:
        shown = list(_folded(frames))
    if len(shown) > MAX_FRAMES:
        inner = MAX_FRAMES - OUTER_FRAMES
        left_out = f"  … {len(shown) - MAX_FRAMES} more frames"
        shown = [*shown[:OUTER_FRAMES], left_out, *shown[-inner:]]
    lines: list[str] = []
    for text, group in groupby(frame if isinstance(frame, str) else _frame_text(frame) for frame in shown):
        count = len(list(group))
        lines += text.split("\n") * min(count, MAX_REPEATS)
        if count > MAX_REPEATS:
            lines.append(f"  [Previous line repeated {count - MAX_REPEATS} more times]")
    return lines


def _frame_text(frame: TracebackType) -> str:
    """One frame as Python prints it; cached, since a task often fails in the same place."""
    code = frame.tb_frame.f_code
    key = (id(code), frame.tb_lasti)
    known = _frame_texts.get(key)
    if known is None:
        from traceback import StackSummary, extract_tb

        text = "".join(StackSummary.from_list(extract_tb(frame, limit=1)).format())
        known = code, "\n".join(line[:MAX_LINE] for line in text.splitlines())
        if len(_frame_texts) >= MAX_CACHED:
            _frame_texts.clear()
        _frame_texts[key] = known
    return known[1]


def _folded(frames: Iterable[TracebackType]) -> Iterator[TracebackType | str]:
    count = 0
    for frame in frames:
        if filename_of(frame).startswith(PACKAGE_FOLDER):
            count += 1
            continue
        if count:
            yield _fold(count)
        count = 0
        yield frame
    if count:
        yield _fold(count)


def _fold(count: int) -> str:
    return f"  … {count} frame{'' if count == 1 else 's'} of {PACKAGE}"


def _exception_lines(error: BaseException) -> list[str]:
    """Type, message and notes; for a syntax error also its source line."""
    if is_a(error, SyntaxError):
        try:
            from traceback import format_exception_only

            return [
                line[:MAX_LINE] for line in "".join(format_exception_only(error)).splitlines()[:MAX_NOTES]
            ]
        except BaseException:
            return [headline_of(error, MAX_PART)]
    return [*headline_of(error, MAX_PART).split("\n"), *notes_of(error)]

"""The text of an exception, for `last_error`, the log and the terminal: bounded, and made without raising.

An exception is foreign code. Its `__str__` may raise or return megabytes, its causes may form a cycle, a
group may have a million members. So every access is guarded and bypasses what a subclass overrides.

A traceback has Python's layout. Users want to see their own code, so frames of this package and of its
callers, the event loop and threads, are left out.
"""

from __future__ import annotations

import builtins
import os
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import dropwhile, islice, pairwise
from traceback import StackSummary, TracebackException, extract_tb
from types import CodeType, TracebackType
from typing import Any, NamedTuple, cast

MAX_MESSAGE = 20_000  # characters of a description; every fetch of the job returns it
MAX_TRACEBACK = 20_000  # characters
MAX_PART = 2_000  # characters of a cause, a note, or a message in a traceback
MAX_SUMMARY = 1_000  # characters of an error on one line
MAX_LINE = 300  # characters of a line of source code in a traceback
MAX_LOCATION = 500
MAX_NOTES = 20
MAX_CHAIN = 8  # causes in a description
MAX_WIDTH = 15  # members shown of a group, as in Python
MAX_EXCEPTIONS = 50  # in one traceback
MAX_FRAMES = 40  # per exception, most of them the innermost
MAX_CACHED = 500  # texts of stacks

PACKAGE = __name__.partition(".")[0]
PACKAGE_FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")
_LIBRARY_FOLDER = os.path.join(os.path.dirname(os.__file__), "")
_CALLERS = (_LIBRARY_FOLDER + name for name in ("asyncio", "concurrent", "threading.py", "contextlib.py"))
_ABOVE_TASKS = (PACKAGE_FOLDER, *_CALLERS)
_LIBRARIES = (PACKAGE_FOLDER, _LIBRARY_FOLDER, "<frozen ")
_INSTALLED = re.compile(r".*[/\\](?:site|dist)-packages[/\\][^/\\]*[/\\]?", re.DOTALL)
_CIRCUMSTANCES = re.compile(r"\n(?=  at .+, line \d+, in |caused by |while handling )")
_HEADER = "Traceback (most recent call last):\n"
_CAUSE = "\nThe above exception was the direct cause of the following exception:\n\n"
_CONTEXT = "\nDuring handling of the above exception, another exception occurred:\n\n"
_BUILT_IN = {
    id(kind): name
    for name, kind in vars(builtins).items()
    if isinstance(kind, type) and issubclass(kind, BaseException) and kind.__name__ == name
}
"""Names by the ids of classes, which live as long as the process: no code of a metaclass is run."""

# Attributes as the interpreter reads them, bypassing a property of the same name.
cause_of: Callable[[BaseException], BaseException | None] = BaseException.__dict__["__cause__"].__get__
context_of: Callable[[BaseException], BaseException | None] = BaseException.__dict__["__context__"].__get__
suppresses_context: Callable[[BaseException], bool] = BaseException.__dict__["__suppress_context__"].__get__
_frame_of: Callable[[BaseException], TracebackType | None] = BaseException.__dict__["__traceback__"].__get__
_exceptions_of: Callable[[BaseException], Any] = BaseExceptionGroup.__dict__["exceptions"].__get__


def describe(error: BaseException) -> str:
    """The text for `last_error`: type and message as Python prints them, then where it was raised."""
    try:
        rest = "".join(f"\n{line}" for line in _circumstances(error))[: MAX_MESSAGE // 2]
        return storable(headline_of(error, MAX_MESSAGE - len(rest)) + rest)
    except BaseException:
        return qualified_name(error)


def format_traceback(error: BaseException) -> str:
    """The traceback as Python prints it, with causes and members of groups, without our frames."""
    try:
        text = "".join(_Report(error, set()).format()).removesuffix("\n")
    except BaseException:
        text = headline_of(error, MAX_PART)
    if len(text) > MAX_TRACEBACK:
        half = MAX_TRACEBACK // 2 - 20
        text = f"{text[:half]}\n[… cut …]\n{text[-half:]}"
    return storable(text, MAX_TRACEBACK)


def describe_and_format(error: BaseException) -> tuple[str, str]:
    """Both texts at once; much faster for short errors without notes or members, the usual case.

    What errors of one place have in common is made once. If their messages are equal, so are the texts.
    """
    try:
        texts = _short_texts(error)
    except BaseException:  # below, each step is guarded
        texts = None
    return texts or (describe(error), format_traceback(error))


def summarize(error: BaseException) -> str:
    """An error on one line: type and message, cut when very long."""
    return cut(on_one_line(storable(headline_of(error, MAX_SUMMARY), MAX_SUMMARY)), MAX_SUMMARY)


def summarize_members(errors: Iterable[BaseException]) -> list[str]:
    """A line per error with the place where it was raised; a last line counts those that are left out."""
    lines: list[str] = []
    errors = list(errors)
    room = MAX_MESSAGE // 2
    for number, error in enumerate(errors):
        line = f"{summarize(error)} {place_of(error)}".rstrip()
        room -= len(line)
        if room < 0:
            return [*lines, f"… and {len(errors) - number} more"]
        lines.append(line)
    return lines


def message_of(error: BaseException) -> str:
    """The message, else the name of the type; for readers who do not need the type."""
    return storable(text_of(error, MAX_MESSAGE)) or qualified_name(error)


def headline_of(error: BaseException, limit: int) -> str:
    """`KeyError: 'sku'`, as Python prints it; the message alone for errors that only this package raised."""
    message = text_of(error, limit)
    if message and is_ours(error) and _own_location(error) is None:
        return message
    name = qualified_name(error)
    return cut(f"{name}: {message}", limit) if message else name


def text_of(error: BaseException, limit: int) -> str:
    """The message, cut to size; a plain `str`, whatever `__str__` returns."""
    try:
        return cut(str.__getitem__(str(error), slice(limit + 1)), limit)
    except BaseException as broken:
        return f"<its message cannot be read: __str__ raised {qualified_name(broken)}>"


def type_name(error: BaseException) -> str:
    """The name of the error's class, without its module."""
    return qualified_name(error).rpartition(".")[2]


def qualified_name(error: BaseException) -> str:
    """The name as Python prints it: with the module, except `builtins` and `__main__`, and ours without."""
    kind = type(error)
    if (known := _BUILT_IN.get(id(kind))) is not None:
        return known
    try:
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
        texts = (str.__getitem__(str(note), slice(MAX_PART)) for note in notes[:MAX_NOTES])
        return [line for text in texts for line in text.split("\n")]
    except BaseException:
        return []


def members_of(error: BaseException) -> tuple[BaseException, ...]:
    """The exceptions of a group or of a batch."""
    if is_a(error, BaseExceptionGroup):
        return tuple(_exceptions_of(error))
    members = getattr(error, "errors", ()) if is_ours(error) else ()
    return members if isinstance(members, tuple) else ()


def is_ours(error: BaseException) -> bool:
    """Whether the class of the error belongs to this package."""
    kind = type(error)
    if id(kind) in _BUILT_IN:
        return False
    try:
        module = kind.__module__
        return isinstance(module, str) and module.partition(".")[0] == PACKAGE
    except BaseException:
        return False


def is_a(error: BaseException, kind: type[BaseException]) -> bool:
    """Like `isinstance`, but ignores an overridden `__class__`."""
    return issubclass(type(error), kind)


def related(error: BaseException) -> Iterable[BaseException]:
    """The error, its causes and contexts and the members of its groups, each once."""
    if cause_of(error) is None and context_of(error) is None and _is_plain(error):
        return (error,)
    return _walk(error, lambda each: (cause_of(each), context_of(each), *members_of(each)))


def drop_frames(error: BaseException) -> None:
    """Drop the frames of an error and of all related errors: they keep every local variable alive."""
    for each in related(error):
        with suppress(BaseException):  # a class may forbid it
            BaseException.with_traceback(each, None)


def frames_of(error: BaseException) -> Iterator[TracebackType]:
    """The frames, the outermost first."""
    frame = _frame_of(error)
    while frame is not None:
        yield frame
        frame = frame.tb_next


def filename_of(frame: TracebackType) -> str:
    """The file of the code that runs in a frame."""
    return frame.tb_frame.f_code.co_filename


def is_above_tasks(filename: str) -> bool:
    """Whether a frame belongs to the callers of tasks: this package, the event loop, threads."""
    return filename.startswith(_ABOVE_TASKS)


def place_of(error: BaseException) -> str:
    """`at tasks/orders.py, line 12, in ship`: the innermost frame of user code; empty if there is none."""
    return _place(_own_location(error))


def without_places(description: str | None) -> str | None:
    """What `describe` returned, for readers who do not know the code: type and message alone."""
    return None if description is None else _CIRCUMSTANCES.split(description, 1)[0]


def cut(text: str, limit: int) -> str:
    """The text, or its beginning and an ellipsis."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def on_one_line(text: str) -> str:
    """The lines of a text, with a bar between them."""
    return " | ".join(stripped for line in text.splitlines() if (stripped := line.strip()))


def storable(text: str, limit: int = MAX_MESSAGE) -> str:
    """The text for the database and for streams: no NUL, no lone surrogates, bounded length."""
    text = cut(text, limit)
    try:
        text.encode()
    except UnicodeEncodeError:
        text = text.encode("utf-8", "backslashreplace").decode()
    return cut(text.replace("\0", "\\x00"), limit)


def _is_plain(error: BaseException) -> bool:
    """Whether it has no members and is not from this package, whose texts differ."""
    return not issubclass(type(error), (BaseExceptionGroup, SyntaxError)) and not is_ours(error)


def _short_texts(error: BaseException) -> tuple[str, str] | None:
    """What `describe` and `format_traceback` return; None if it is too long or special for this."""
    if not _is_plain(error) or notes_of(error):
        return None
    stack = _stack_of(error)
    texts = _texts_of(error, stack)
    if len(texts.line) > MAX_PART:
        return None
    if (inner := _next_in_chain(error)) is None:
        return texts.both if stack.is_short else None
    chain, (description, traceback) = [error], texts.both
    while inner is not None:
        outer = chain[-1]
        if not _is_plain(inner) or any(inner is each for each in chain) or notes_of(inner):
            return None
        chain.append(inner)
        stack, is_cause = _stack_of(inner), cause_of(outer) is inner
        line = _texts_of(inner, stack).line
        description += f"\n{'caused by' if is_cause else 'while handling'} {line}{stack.below}"
        traceback = f"{stack.above}{line}\n{_CAUSE if is_cause else _CONTEXT}{traceback}"
        if len(line) > MAX_PART or len(chain) > MAX_CHAIN or len(traceback) > MAX_TRACEBACK:
            return None
        inner = _next_in_chain(inner)
    return (description, traceback) if len(description) <= MAX_MESSAGE // 2 else None


def _texts_of(error: BaseException, stack: _Stack) -> _Texts:
    """Those of the last error of the place if this one has the same type and message."""
    name, message = qualified_name(error), text_of(error, MAX_PART)
    texts = stack.latest
    if texts is None or message != texts.message or name != texts.name:
        line = storable(f"{name}: {message}" if message else name)
        stack.latest = texts = _Texts(name, message, line, (line + stack.below, stack.above + line))
    return texts


def _next_in_chain(error: BaseException) -> BaseException | None:
    """The cause of an error, else its context, unless that is hidden."""
    cause = cause_of(error)
    return cause if cause is not None or suppresses_context(error) else context_of(error)


def _walk(
    error: BaseException, following: Callable[[BaseException], Iterable[BaseException | None]]
) -> Iterator[BaseException]:
    waiting: list[BaseException | None] = [error]
    seen = set[int]()
    while waiting:
        each = waiting.pop()
        if each is not None and id(each) not in seen:
            seen.add(id(each))
            yield each
            waiting += following(each)


def _chained(error: BaseException) -> BaseException | None:
    """The cause of an error, else its context, if Python prints it."""
    found = _next_in_chain(error)
    # Our own errors say everything themselves, unless user code caused them.
    return None if found is None or (is_ours(error) and _own_location(found) is None) else found


def _circumstances(error: BaseException) -> Iterator[str]:
    """Where an error was raised, its notes, its members and its causes."""
    if place := place_of(error):
        yield f"  {place}"
    yield from notes_of(error)
    if is_a(error, BaseExceptionGroup):
        found = _walk(error, lambda each: reversed(members_of(each)[: MAX_WIDTH + 1]))
        leaves = [each for each in islice(found, 1_000) if not is_a(each, BaseExceptionGroup)]
        yield from (f"  - {line}" for line in summarize_members(leaves[:MAX_WIDTH]))
        if len(leaves) > MAX_WIDTH:
            yield "  - …"
    for outer, inner in pairwise(islice(_walk(error, lambda each: (_chained(each),)), MAX_CHAIN + 1)):
        word = "caused by" if cause_of(outer) is inner else "while handling"
        yield f"{word} {headline_of(inner, MAX_PART)}"
        if place := place_of(inner):
            yield f"  {place}"


def _own_location(error: BaseException) -> tuple[str, int, str] | None:
    """File, line and function of the innermost frame of user code.

    Libraries do not count, unless the task itself is in a library: then that is the user's program.
    """
    program: str | None = None
    found: TracebackType | None = None
    for frame in frames_of(error):
        name = filename_of(frame)
        if program is None and not is_above_tasks(name):
            program = installed[0] if (installed := _INSTALLED.match(name)) else name
        if program is not None and (name.startswith(program) or not _is_library(name)):
            found = frame
    return found and (filename_of(found), found.tb_lineno, found.tb_frame.f_code.co_name)


def _is_library(filename: str) -> bool:
    return filename.startswith(_LIBRARIES) or _INSTALLED.match(filename) is not None


def _place(location: tuple[str, int, str] | None) -> str:
    if location is None:
        return ""
    path, line, function = location
    with suppress(OSError):  # the current folder was deleted
        path = path.removeprefix(os.path.join(os.getcwd(), ""))
    return on_one_line(f"at {path}, line {line}, in {function}"[:MAX_LOCATION])


class _Report(TracebackException):
    """The layout is Python's; the parts are read safely, and only as far as they are shown."""

    def __init__(self, error: BaseException, seen: set[int]) -> None:
        super().__init__(Exception, Exception(), None, max_group_width=MAX_WIDTH)
        self._last_lines = [headline_of(error, MAX_PART)]
        if id(error) in seen or len(seen) >= MAX_EXCEPTIONS:
            return
        seen.add(id(error))
        stack, members, found = _stack_of(error), members_of(error), _chained(error)
        if stack.text and not (is_ours(error) and stack.own_location is None):
            self.stack = cast(Any, stack)
        if is_ours(error) and members:  # a batch: the rest of its message repeats the members
            self._last_lines = self._last_lines[0].split("\n")[:1]
        if is_a(error, SyntaxError):
            self._last_lines = _syntax_error(error) or self._last_lines
        self._last_lines += notes_of(error)
        if found is not None and id(found) not in seen:
            name = "__cause__" if cause_of(error) is found else "__context__"
            setattr(self, name, _Report(found, seen))
        if members:
            shown = [_Report(each, seen) for each in members[:MAX_WIDTH]]
            self.exceptions = [*shown, *cast(Any, members[MAX_WIDTH:])]  # the others are only counted

    def format_exception_only(self, **_: object) -> Generator[str, None, None]:
        yield from (f"{line}\n" for line in self._last_lines)


def _syntax_error(error: BaseException) -> list[str]:
    """Type and message with the line of source code; without the causes, which may be many."""
    with suppress(BaseException):
        alone = TracebackException(type(error), SyntaxError(*error.args), None)
        return [line[:MAX_LINE] for line in "".join(alone.format_exception_only()).splitlines()[:MAX_NOTES]]
    return []


class _Texts(NamedTuple):
    """Of the last error with some stack; of no use for a long message."""

    name: str
    message: str
    line: str
    """Type and message; storable."""
    both: tuple[str, str]
    """The description and the traceback, without causes."""


class _Stack:
    """The frames of an error, as text."""

    __slots__ = ("above", "below", "codes", "is_short", "latest", "own_location", "text")

    def __init__(
        self, text: str, own_location: tuple[str, int, str] | None, codes: Sequence[CodeType]
    ) -> None:
        self.text = text
        self.own_location = own_location
        self.codes = codes  # held, so that their ids are not reused
        self.above = storable(f"{_HEADER}{text}" if text else "", MAX_TRACEBACK)
        """What stands above the type and the message in a traceback; storable."""
        self.below = storable(f"\n  {place}" if (place := _place(own_location)) else "")
        """What stands below them in a description: the place in user code; storable."""
        self.is_short = len(text) <= MAX_TRACEBACK - 2 * MAX_PART
        self.latest: _Texts | None = None

    def format(self, **_: object) -> str:
        return self.text


_stacks: dict[tuple[int, ...], _Stack] = {}


def _stack_of(error: BaseException) -> _Stack:
    """Cached, since a task often fails in the same place."""
    numbers: list[int] = []
    frame = _frame_of(error)
    while frame is not None:
        numbers += (id(frame.tb_frame.f_code), frame.tb_lasti)
        frame = frame.tb_next
    known = _stacks.get(key := tuple(numbers))
    if known is None:
        frames = list(frames_of(error))
        codes = [frame.tb_frame.f_code for frame in frames]
        known = _Stack(_frames_text(frames), _own_location(error), codes)
        if len(_stacks) >= MAX_CACHED:
            _stacks.clear()
        if len(codes) <= MAX_FRAMES:
            _stacks[key] = known
    return known


def _frames_text(frames: list[TracebackType]) -> str:
    below = dropwhile(lambda frame: is_above_tasks(filename_of(frame)), frames)
    shown = [frame for frame in below if not filename_of(frame).startswith(PACKAGE_FOLDER)]
    shown = shown or frames  # a fault of this package
    left_out, outer = len(shown) - MAX_FRAMES, MAX_FRAMES // 4
    if left_out <= 0:
        return _printed(shown)
    return f"{_printed(shown[:outer])}  … {left_out} more frames\n{_printed(shown[outer + left_out :])}"


def _printed(frames: list[TracebackType]) -> str:
    summaries = [extract_tb(frame, limit=1)[0] for frame in frames]
    lines = "".join(StackSummary.from_list(summaries).format()).splitlines()
    return "".join(f"{line[:MAX_LINE]}\n" for line in lines)

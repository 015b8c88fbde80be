"""Safe access to one exception: its name, message, causes and frames.

Every access is guarded and bypasses what a subclass overrides; see `error_text`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any

MAX_MESSAGE = 20_000  # characters of a description; every fetch of the job returns it
MAX_PART = 2_000  # characters of a cause, a note, or a message in a traceback
MAX_NOTES = 20
MAX_LOCATION = 500

PACKAGE = __name__.partition(".")[0]
PACKAGE_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "")
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

"""How values are shown: payloads, errors and tracebacks as plain data that templates escape; times.

What jobs carry may be hostile. Control characters become pictures, ANSI sequences are removed, and characters
that change the direction of text are shown by their numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Final, Literal
from zoneinfo import ZoneInfo

from ...history.error_groups import ErrorGroup
from ...values.text import DAY
from ...values.text import duration as duration_text
from ..answers import Problem
from ..security import redact
from ..security.redact import HIDDEN

SHOWN = 64 * 1024
"""Characters of a payload or an error that a page shows; the rest is a download."""
FOLDED = 60
"""Lines of a payload that are shown at first; the others are in a fold."""
MAX_DEPTH = 24
"""Levels that are laid out with an indent; deeper ones stay on one line."""
INDENT = "  "

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-_])")
_PICTURES = {code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\n\t"} | {0x7F: "\u2421"}
_NUMBERED = {
    code: f"[U+{code:04X}]"
    for code in (
        *range(0x80, 0xA0), 0xAD, 0x061C, 0x180E, *range(0x200B, 0x2010), 0x2028, 0x2029,
        *range(0x202A, 0x202F), *range(0x2060, 0x2070), 0xFEFF, *range(0xFFF9, 0xFFFC),
        *range(0xE0000, 0xE0080),
    )
}  # fmt: skip
_VISIBLE = {0x0D: "\u240d", **_PICTURES, **_NUMBERED}
_HALVES = re.compile("[\ud800-\udfff]")

Kind = Literal["", "name", "text", "number", "word", "hidden"]


def visible(text: str) -> str:
    """The text with everything that is not shown made visible."""
    plain = _ANSI.sub("", text.replace("\r\n", "\n")).translate(_VISIBLE)
    return _HALVES.sub(lambda found: f"[U+{ord(found[0]):04X}]", plain)


def numbered(text: str) -> str:
    """The text with characters that change the direction of others, or are not seen, shown by number."""
    return text if text.isascii() else text.translate(_NUMBERED)


def one_line(text: str | None, longest: int = 200) -> str:
    """The first line that says something."""
    line = next((line for line in visible((text or "")[: longest * 8]).splitlines() if line.strip()), "")
    return line if len(line) <= longest else line[: longest - 1] + "…"


def error_title(group: ErrorGroup, redactor: redact.Redactor) -> str:
    """The type without its module, and the message without secrets."""
    kind, message = group.error_type.rpartition(".")[2], redactor.text(group.message)
    return f"{kind}: {message}" if kind else message


@dataclass(frozen=True, slots=True)
class Piece:
    """Some characters of a laid-out text, of one kind."""

    text: str
    kind: Kind = ""


@dataclass(frozen=True, slots=True)
class Layout:
    """A JSON text, laid out in lines."""

    lines: list[list[Piece]]
    text: str
    """The same as one text, to copy."""
    is_cut: bool
    """Whether it is longer than a page shows."""
    size: int
    """Characters of the whole."""

    @property
    def first(self) -> list[list[Piece]]:
        return self.lines[:FOLDED]

    @property
    def rest(self) -> list[list[Piece]]:
        return self.lines[FOLDED:]


def lay_out(raw: str) -> Layout:
    """A JSON text with one member per line, as its tokens were written."""
    lines: list[list[Piece]] = [[]]
    length, is_cut = 0, False
    for piece in _pieces(raw):
        text = visible(piece.text)
        if length + len(text) > SHOWN:
            text, is_cut = text[: max(0, SHOWN - length)] + "…", True
        length += len(text)
        lines[-1].append(Piece(text, piece.kind))
        if is_cut:
            break
        if piece.text.startswith("\n"):
            lines[-1].pop()
            lines.append([Piece(piece.text[1:])])
    text = "\n".join("".join(piece.text for piece in line) for line in lines)
    return Layout(lines, text, is_cut, len(raw))


def _pieces(raw: str) -> Iterator[Piece]:
    """Tokens with their kinds; a piece that starts with a line break is the indent of the next line."""
    depth = 0
    previous = ""
    for kind, symbol, _ in redact.walk(raw):
        if kind == "close":
            depth -= 1
            if previous not in ("{", "["):
                yield _break(depth)
        elif previous in ("{", "[") or (previous == "," and kind != "mark"):
            yield _break(depth)
        if kind == "open":
            depth += 1
        has_space = symbol == ":" or (symbol == "," and depth > MAX_DEPTH)
        yield Piece(symbol + " " if has_space else symbol, _kind(kind, symbol))
        previous = symbol


def _break(depth: int) -> Piece:
    return Piece("\n" + INDENT * depth) if depth <= MAX_DEPTH else Piece("")


def _kind(kind: redact.Kind, symbol: str) -> Kind:
    if kind == "name":
        return "name"
    if kind != "value":
        return ""
    if redact.is_text(symbol):
        return "hidden" if HIDDEN in symbol else "text"
    return "word" if symbol in ("true", "false", "null") else "number"


@dataclass(frozen=True, slots=True)
class Frames:
    """Lines of a traceback that belong together; those of libraries are folded."""

    lines: list[str]
    is_folded: bool = False
    summary: str = ""
    is_last: bool = False
    """Whether these are the lines of the error itself."""


def lay_out_error(text: str) -> list[Frames]:
    """An error: frames of the application and the message open, frames of libraries folded."""
    shown = visible(text[:SHOWN])
    found: list[Frames] = []
    for library, lines in _grouped(shown.split("\n")):
        if library:
            count = sum(line.lstrip().startswith("File ") for line in lines)
            word = "frame" if count == 1 else "frames"
            found.append(Frames(lines, True, f"… {count} {word} of {library}"))
        else:
            found.append(Frames(lines))
    return found


def _grouped(lines: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Runs of lines by the library they belong to; an empty name is one's own code."""
    current, kept = "", list[str]()
    for line in lines:
        place = _FRAME.match(line)
        library = _library(place[1]) if place else (current if line.startswith("    ") else "")
        if library != current and kept:
            yield current, kept
            kept = []
        current = library
        kept.append(line)
    if kept:
        yield current, kept


_FRAME = re.compile(r'\s*File "([^"]+)", line \d+')
_PACKAGE = re.compile(r"(?:site-packages|dist-packages)[/\\]([\w.-]+)")
_STANDARD = re.compile(r"[/\\]lib(?:64)?[/\\]python[\d.]+[/\\]|[/\\]Python\d*[/\\]Lib[/\\]|^<frozen")


def _library(path: str) -> str:
    """The name of the library that a file belongs to; empty for the application's own."""
    packages = _PACKAGE.findall(path)
    if packages:
        return str(packages[-1]).removesuffix(".py")
    return "the standard library" if _STANDARD.search(path) else ""


def csv_cell(value: object) -> str:
    """A value for a CSV file: spreadsheets must not take it for a formula."""
    text = "" if value is None else str(value)
    first = text.lstrip()[:1]
    is_formula = first and first in "=+-@＝＋－＠" and not _NUMBER.fullmatch(text)
    return f"'{text}" if is_formula or text[:1] in ("\t", "\r", "\n") else text


_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


# -- states and actions -------------------------------------------------------------------------------------

STATES: Final = {
    # jobs
    "ready": ("ready", "ok"),
    "scheduled": ("scheduled", "idle"),
    "retry": ("waiting for |retry", "warn"),
    "waiting_for_retry": ("waiting for |retry", "warn"),
    "running": ("running", "run"),
    "prefetched": ("prefetched", "run"),
    "failed": ("failed", "bad"),
    "permanently_failed": ("permanently |failed", "bad"),
    "paused": ("paused", "warn"),
    "gone": ("gone", "idle"),
    # states of finished jobs, and outcomes
    "completed": ("completed", "ok"),
    "cancelled": ("cancelled", "idle"),
    "expired": ("expired", "idle"),
    "snoozed": ("snoozed", "idle"),
    "interrupted": ("interrupted", "warn"),
    # workers
    "alive": ("alive", "ok"),
    "stopping": ("stopping", "warn"),
    "late": ("heartbeat late", "warn"),
    "dead": ("dead", "bad"),
    "unknown": ("state unknown", "idle"),
    # operations
    "planned": ("planned", "idle"),
    "done": ("done", "ok"),
    "stopped": ("stopped", "warn"),
    # error groups
    "new": ("new", "bad"),
    "retrying": ("retrying", "warn"),
    "exhausted": ("no attempts left", "bad"),
    "muted": ("muted", "idle"),
}
"""State to its words and tone. What precedes `|` is left out on phones.

Tones: ok, run, warn, bad, idle; each has a colour and a shape.
"""


def state_of(state: str) -> tuple[str, str, str]:
    """Words that a phone leaves out, the word and the tone of a state; an unknown one is shown as it is."""
    words, tone = STATES.get(state, (state.replace("_", " ").replace("|", " "), "idle"))
    more, _, word = words.rpartition("|")
    return more, word, tone


ACTION_WORDS = {
    "retry_carefully": "Careful retry", "mute_error": "Mute error group", "add_job": "Add a job",
    "unmute_error": "Unmute error group", "sign_in_refused": "Sign-in refused",
}  # fmt: skip
"""Actions whose names do not say what people call them."""


def words_for(action: str) -> str:
    """The name of an action for people."""
    return ACTION_WORDS.get(action) or (action[:1].upper() + action[1:]).replace("_", " ")


# -- times --------------------------------------------------------------------------------------------------
#
# Relative first, the exact time in the viewer's zone and in UTC. The browser tells its time zone in a cookie
# (`times.js` sets it); without one, times are in UTC. `static/times.js` has the same rules, so that relative
# times go on without the server.

ZONE_COOKIE = "gw_zone"
NONE = "—"
LONGEST = 100 * 365 * DAY
"""Seconds; what is further away than that counts as never."""


@lru_cache(maxsize=128)
def zone_named(name: str) -> tzinfo:
    """The zone with an IANA name such as Europe/Berlin; UTC for anything else."""
    try:
        return ZoneInfo(name) if 0 < len(name) <= 64 else UTC
    except (KeyError, ValueError, OSError):
        return UTC


def zone_name(zone: tzinfo) -> str:
    return str(zone) if isinstance(zone, ZoneInfo) else "UTC"


def duration(seconds: float | timedelta | None, *, units: int = 2) -> str:
    """A duration, or a dash if there is none."""
    return NONE if seconds is None else duration_text(seconds, units=units)


def relative(at: datetime | None, now: datetime) -> str:
    """3 min ago, just now, in 4 h."""
    if at is None:
        return NONE
    if is_never(at, now):
        return "never"
    value = (_aware(at) - now).total_seconds()
    if abs(value) < 1:
        return "just now"
    words = duration_text(int(abs(value)), units=1)
    return f"in {words}" if value > 0 else f"{words} ago"


def instant(at: datetime | None, zone: tzinfo = UTC) -> str:
    """2026-11-16 03:14:07 CET."""
    if at is None:
        return NONE
    local = local_time(at, zone)
    return f"{local:%Y-%m-%d %H:%M:%S %Z}" if local is not None else "never"


def clock(at: datetime | None, now: datetime, zone: tzinfo = UTC) -> str:
    """03:14:07 for a time of today, 15 Nov 03:14 for another day of this year, else 2025-11-15 03:14."""
    if at is None:
        return NONE
    local = local_time(at, zone)
    if local is None:
        return "never"
    today = now.astimezone(zone)
    if local.date() == today.date():
        return f"{local:%H:%M:%S}"
    if local.year == today.year:
        return f"{local.day} {local:%b %H:%M}"
    return f"{local:%Y-%m-%d %H:%M}"


def local_time(at: datetime, zone: tzinfo) -> datetime | None:
    """The time in a zone; None if it lies outside of the calendar."""
    try:
        return _aware(at).astimezone(zone)
    except (OverflowError, ValueError):
        return None


def is_never(at: datetime, now: datetime) -> bool:
    """Whether a time is so far away that it stands for infinity."""
    return abs((_aware(at) - now).total_seconds()) >= LONGEST


def _aware(at: datetime) -> datetime:
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


_UTC = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) UTC")


def times_in(text: str) -> Iterator[tuple[str, datetime | None]]:
    """Parts of a text, each with the time in UTC that follows it; None after the last."""
    *parts, rest = _UTC.split(text)
    for part, at in zip(parts[::2], parts[1::2], strict=True):
        try:
            yield part, datetime.fromisoformat(at).replace(tzinfo=UTC)
        except ValueError:
            yield f"{part}{at} UTC", None
    yield rest, None


def typed_time(text: str, zone: tzinfo) -> datetime:
    """A time that was typed in the viewer's zone."""
    try:
        found = datetime.fromisoformat(text[:40])
    except ValueError:
        raise Problem(400, "The time is not valid", "Write it as 2030-01-31T12:00.") from None
    return found if found.tzinfo is not None else found.replace(tzinfo=zone)

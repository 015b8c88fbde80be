"""Redaction: what looks like a secret is hidden before anything leaves the server.

In payloads, the values of members with telling names, at any depth, of the paths that `redact=` names, and
secrets in texts. In texts, as errors are, user and password in URLs, and what follows a telling name, as in
`token=...` or `--password ...`. `Redactor.payload` works on the JSON text, so numbers stay as they were
written. The statement part `matching_jobs` hides at least the same from searches.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import msgspec

from ...values.job import Pause

FormatPayload = Callable[[str, Any], Any]
"""Gets the task identifier and the payload; returns what is shown in its place."""
HIDDEN = "[redacted]"
NAMES = (
    "password", "passwd", "passphrase", "pwd", "secret", "token", "apikey", "accesskey", "authorization",
    "cookie", "session", "credential", "privatekey", "jwt",
)  # fmt: skip
"""Parts of names whose values are hidden, without `_` and `-`, in lower case."""
LONGEST_NAME = 80
"""Characters of a text that may be a name beside its value, as in `["Authorization", "Bearer ..."]`."""
# Texts are hostile: no pattern reads a character more than a few times. What begins like a secret and is none
# is part of a match too, so that the search goes on behind it.
_URL = re.compile(
    # A user that a password follows, which may contain an @; or a user alone, which may be a token.
    r"://([^\s/?#:@]*+)(?::([^\s@]++)(@|\Z)?|(@))((?:[^\s/?#@\"'<>,;]*+@)*+)"
)
_IS_PORT = re.compile(r"\d{1,5}(?:[/?#].*)?", re.DOTALL)
_QUOTED = r"[bBrRuUfF]{0,2}+(?:\"[^\"\\]*+(?:\\.[^\"\\]*+)*+\"|'[^'\\]*+(?:\\.[^'\\]*+)*+')"
_VALUE = (
    # What is hidden already; in quotes; in quotes that are escaped, as in JSON inside of JSON; in quotes that
    # do not end; in brackets; a word.
    rf"\[redacted\]|{_QUOTED}|(?P<quote>\\{{1,8}}+[\"'])(?:(?!(?P=quote))[^\n])*+(?:(?P=quote))?|[\"'][^\n]*+"
    r"|[\[{(][^\n]*+|[^\s,;&)}\]]++"
)
_NAMED = re.compile(
    # One of `NAMES`; the first letter apart, because the search for one of a few letters is fast. Names of
    # errors are none, but what follows them may be.
    r"(?P<name>[pstacjPSTACJ](?i:(?<=p)ass[_-]?word|(?<=p)asswd|(?<=p)assphrase|(?<=p)wd|(?<=p)rivate[_-]?key"
    r"|(?<=s)ecret|(?<=s)ession|(?<=t)oken|(?<=a)pi[_-]?key|(?<=a)ccess[_-]?key|(?<=j)wt"
    r"|(?P<header>(?<=a)uthorization|(?<=c)ookie)|(?<=c)redential)[\w-]*+)"
    r"(?:(?i:(?<!error)(?<!exception)(?<!warning)(?<!expired)(?<!invalid))"
    r"(?P<sign>\\{0,8}+[\"']?\]?\s{0,8}+!?[:=]{1,3}+>?\s{0,8}+)"
    # The value of a header has several words: it ends with the line, unless it is in quotes.
    rf"(?:(?(header)(?![bBrRuUfF\\]{{0,8}}[\"'])[^\n]++|(?!))|{_VALUE}))?",
    re.DOTALL,
)
_OPTION = re.compile(
    # `--password X`, and `'--password', 'X'` as commands are written in Python.
    rf"(?<![\w-])(?P<name>--?[A-Za-z][\w-]*+)(?P<sign>\s{{1,8}}+(?!-)|[\"'],\s{{0,8}}+(?=[\"']))(?:{_VALUE})",
    re.DOTALL,
)
_PAIR = re.compile(
    rf"(?P<start>[\[(]\s{{0,8}}+[bB]?[\"'])(?P<name>[\w-]{{1,{LONGEST_NAME}}}+)(?P<sign>[\"']\s{{0,8}}+,\s{{0,8}}+)"
    rf"(?:{_QUOTED})",
    re.DOTALL,
)
_NAME = re.compile(rf"[\w-]{{1,{LONGEST_NAME}}}")
_SEPARATORS = str.maketrans("", "", "_- ")

logger = logging.getLogger("graphile_worker.admin")


class Redactor:
    """Hides secrets by name, by path, and in texts."""

    def __init__(self, paths: Sequence[str] = (), format_payload: FormatPayload | None = None) -> None:
        """`paths` such as `card.number` hide members at the end of any path; `*` stands for one name."""
        self._paths = [path.split(".") for path in paths if path]
        self._format = format_payload

    @property
    def replaces_payloads(self) -> bool:
        """Whether a function of the user decides what is shown of payloads."""
        return self._format is not None

    def payload(self, raw: str, task: str) -> str:
        """The JSON text of a payload without secrets, or what `format_payload` makes of it."""
        if self._format is not None:
            return self._formatted(self._format, raw, task)
        return self.json(raw)

    def json(self, raw: str, above: Sequence[str] = ()) -> str:
        """A JSON text without secrets; `above` is the path of the value, if it is a part of another."""
        if not self._may_have_secrets(raw):
            return raw
        kept: list[str] = []
        depths: list[int] = []  # how many names there are above each object and array
        skipped = 0  # how deep inside of a hidden value
        is_hidden = is_next_hidden = is_changed = False
        names = [name for name in above if not name.isdecimal()]  # of the members that the walk is in
        for kind, symbol, path in walk(raw):
            if skipped:
                skipped += {"open": 1, "close": -1}.get(kind, 0)
                if kind == "close" and not skipped:
                    is_hidden = False
            elif kind == "name":
                kept.append(symbol)
                del names[len(depths) and depths[-1] :]
                if not path[-1].isdecimal():
                    names.append(path[-1])
                is_hidden = self._hides_last(names)
            elif kind in ("open", "value") and is_hidden:
                kept.append(quoted(HIDDEN))
                is_changed = True
                skipped = 1 if kind == "open" else 0
                is_hidden = bool(skipped)
            elif kind == "open":
                kept.append(symbol)
                depths.append(len(names))
            elif kind == "close":
                kept.append(symbol)
                del names[depths.pop() :]
                is_next_hidden = False
            elif kind == "value" and is_text(symbol):
                kept.append(self._text_symbol(symbol))
                is_changed = is_changed or kept[-1] != symbol
                is_next_hidden = _names_next(text_of(symbol), path)
            else:
                kept.append(symbol)
                if symbol == ",":
                    is_hidden, is_next_hidden = is_next_hidden, False
        return "".join(kept) if is_changed else raw

    def hides_name(self, name: str) -> bool:
        """Whether a member of this name is hidden somewhere, for what is known of members without a path."""
        return is_telling(name) or any(path[-1] in ("*", name) for path in self._paths)

    def hides(self, path: Sequence[str]) -> bool:
        """Whether the member at this path is hidden, itself or with one above it."""
        names = [name for name in path if not name.isdecimal()]
        return any(self._hides_last(names[:end]) for end in range(1, len(names) + 1))

    def _hides_last(self, names: Sequence[str]) -> bool:
        """Whether the last of these names is that of a hidden member; those above it are not hidden."""
        if not names:
            return False
        return is_telling(names[-1]) or any(_ends_with(names, wanted) for wanted in self._paths)

    def text(self, text: str) -> str:
        """An error or any other text without secrets."""
        return redacted_text(text)

    def optional_text(self, text: str | None) -> str | None:
        return None if text is None else self.text(text)

    def _may_have_secrets(self, raw: str) -> bool:
        """A quick look, so that most payloads are passed on as they are."""
        if self._paths or "\\u" in raw or "://" in raw or "\\/" in raw:
            return True
        return _may_name_secrets(raw)

    def _text_symbol(self, symbol: str) -> str:
        text = text_of(symbol)
        redacted = redacted_text(text)
        return symbol if redacted == text else quoted(redacted)

    def _formatted(self, format: FormatPayload, raw: str, task: str) -> str:
        """What the user's function returns, redacted all the same."""
        try:
            value: Any = format(task, msgspec.json.decode(raw))
            return self.json(msgspec.json.encode(value).decode())
        except Exception:
            logger.exception("format_payload failed for a payload of %s; the payload is not shown", task)
            return quoted("[format_payload failed]")


def is_telling(name: str) -> bool:
    """Whether a member, a header or an option of this name has a secret."""
    squeezed = name.lower().translate(_SEPARATORS)
    return any(part in squeezed for part in NAMES)


def _names_next(text: str, path: Sequence[str]) -> bool:
    """Whether a text in an array is the name of what follows: `["Authorization", …]`, `["--token", …]`."""
    if not path or not path[-1].isdecimal() or not _NAME.fullmatch(text):
        return False
    return (path[-1] == "0" or text.startswith("-")) and is_telling(text)


def _ends_with(names: Sequence[str], wanted: Sequence[str]) -> bool:
    if len(names) < len(wanted):
        return False
    return all(pattern in ("*", name) for name, pattern in zip(names[-len(wanted) :], wanted, strict=True))


def redacted_text(text: str) -> str:
    """A text without secrets; the same whatever the settings are."""
    if "://" in text:
        text = _URL.sub(_url, text)
    if not _may_name_secrets(text):
        return text
    return _NAMED.sub(_named, _PAIR.sub(_pair, _OPTION.sub(_option, text)))


def redacted_pauses(pauses: Sequence[Pause]) -> list[Pause]:
    """Pauses without secrets in their reasons, which people write."""
    return [msgspec.structs.replace(each, reason=redacted_text(each.reason or "") or None) for each in pauses]


def _may_name_secrets(text: str) -> bool:
    """A quick look, so that most texts are passed on as they are."""
    squeezed = text.lower().translate(_SEPARATORS)
    return any(name in squeezed for name in NAMES)


def _url(found: re.Match[str]) -> str:
    """A URL that the end of the text cuts off may have been about to name its host."""
    user, password, at, more = found[1], found[2], found[3], found[5]
    if found[4] is not None:
        return f"://{HIDDEN}@" if user or more else found[0]
    if at is None or (not at and _IS_PORT.fullmatch(password)):
        return found[0]
    return f"://{user}:{HIDDEN}{at}"


def _named(found: re.Match[str]) -> str:
    return found[0] if found["sign"] is None else f"{found['name']}{found['sign']}{HIDDEN}"


def _option(found: re.Match[str]) -> str:
    return f"{found['name']}{found['sign']}{HIDDEN}" if is_telling(found["name"]) else found[0]


def _pair(found: re.Match[str]) -> str:
    if not is_telling(found["name"]):
        return found[0]
    return f"{found['start']}{found['name']}{found['sign']}{HIDDEN}"


# -- JSON texts ---------------------------------------------------------------------------------------------

_SYMBOL = re.compile(r'[ \t\n\r]*+("[^"\\]*+(?:\\.[^"\\]*+)*+"|[{}\[\],:]|[^\s{}\[\],:"]+)', re.DOTALL)


def symbols(text: str) -> Iterator[str]:
    """The symbols of a valid JSON text: texts in quotes, other values, and `{ } [ ] , :`."""
    position = 0
    while found := _SYMBOL.match(text, position):
        yield found[1]
        position = found.end()


def text_of(symbol: str) -> str:
    """The value of a symbol in quotes; half surrogates and the like stay escaped."""
    if "\\" not in symbol:
        return symbol[1:-1]
    try:
        value: str = json.loads(symbol, strict=False)
        value.encode("utf-8")
    except (ValueError, UnicodeEncodeError):
        return symbol[1:-1]
    return value


def quoted(text: str) -> str:
    """A text as a JSON symbol."""
    return json.dumps(text, ensure_ascii=False)


def is_text(symbol: str) -> bool:
    return symbol.startswith('"')


Kind = Literal["open", "close", "name", "value", "mark"]


def walk(text: str) -> Iterator[tuple[Kind, str, list[str]]]:
    """Every symbol with its kind and the path of the value that it belongs to.

    The path has the names of members and the places in arrays; it is one list, which changes as the walk goes
    on.
    """
    path: list[str] = []
    kinds: list[str] = []
    expects_name = False
    for symbol in symbols(text):
        if symbol in ("{", "["):
            yield "open", symbol, path
            kinds.append(symbol)
            path.append("" if symbol == "{" else "0")
            expects_name = symbol == "{"
        elif symbol in ("}", "]"):
            kinds.pop()
            path.pop()
            expects_name = False
            yield "close", symbol, path
        elif symbol == ",":
            yield "mark", symbol, path
            expects_name = kinds[-1] == "{"
            if not expects_name:
                path[-1] = str(int(path[-1]) + 1)
        elif symbol == ":":
            yield "mark", symbol, path
            expects_name = False
        elif expects_name:
            path[-1] = text_of(symbol)
            yield "name", symbol, path
        else:
            yield "value", symbol, path


def member(text: str, path: Sequence[str]) -> str | None:
    """The plain value at a path, as PostgreSQL's `#>>` gives it; None if there is none."""
    wanted = list(path)
    found = None
    for kind, symbol, here in walk(text):
        if kind == "value" and here == wanted:
            found = text_of(symbol) if is_text(symbol) else None if symbol == "null" else symbol
    return found

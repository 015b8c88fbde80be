"""Crontabs for fuzzing: patterns of which we know what they mean, and lines that are nearly right."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from hypothesis import strategies as st

MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
WEEKDAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
BOUNDS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))


@dataclass(frozen=True)
class Field:
    """A field as it is written, and the values that it means."""

    text: str
    values: frozenset[int]


@dataclass(frozen=True)
class Pattern:
    """Five fields; `matches` says in the plainest way what they mean."""

    fields: tuple[Field, ...]

    @property
    def text(self) -> str:
        return " ".join(field.text for field in self.fields)

    @property
    def plain_text(self) -> str:
        """The same with every value written out."""
        return " ".join(",".join(map(str, sorted(field.values))) for field in self.fields)

    def matches(self, moment: datetime) -> bool:
        minutes, hours, dates, months, weekdays = (field.values for field in self.fields)
        date, weekday = moment.day in dates, moment.isoweekday() % 7 in weekdays
        either = len(dates) < 31 and len(weekdays) < 7
        day = (date or weekday) if either else (date and weekday)
        return moment.minute in minutes and moment.hour in hours and moment.month in months and day


@st.composite
def parts(draw: Any, place: int) -> Field:
    """One entry of a comma list."""
    low, high = BOUNDS[place]
    words = {3: MONTHS, 4: WEEKDAYS}.get(place)
    top = 7 if place == 4 else high

    def written(value: int) -> str:
        if words is not None and value - low < len(words) and draw(st.booleans()):
            word = words[value - low]
            return draw(st.sampled_from([word, word.upper(), word.title()]))
        return draw(st.sampled_from(["", "", "0", "00"])) + str(value)

    def meant(values: range) -> frozenset[int]:
        return frozenset(value % 7 if place == 4 else value for value in values)

    kind = draw(st.sampled_from(["every", "step", "one", "range", "range with step"]))
    if kind == "every":
        return Field("*", meant(range(low, high + 1)))
    step = draw(st.integers(1, 2 * high))
    if kind == "step":
        return Field(f"*/{step}", meant(range(low, high + 1, step)))
    first = draw(st.integers(low, top))
    if kind == "one" or first == top:
        return Field(written(first), meant(range(first, first + 1)))
    last = draw(st.integers(first + 1, top))
    span = f"{written(first)}-{written(last)}"
    if kind == "range":
        return Field(span, meant(range(first, last + 1)))
    return Field(f"{span}/{step}", meant(range(first, last + 1, step)))


def fields(place: int) -> st.SearchStrategy[Field]:
    def joined(entries: list[Field]) -> Field:
        values = frozenset[int]().union(*(entry.values for entry in entries))
        return Field(",".join(entry.text for entry in entries), values)

    return st.lists(parts(place), min_size=1, max_size=3).map(joined)


PATTERNS = st.builds(Pattern, st.tuples(*(fields(place) for place in range(5))))
MOMENTS = st.datetimes(datetime(1971, 1, 1), datetime(2105, 1, 1)).map(
    lambda moment: moment.replace(second=0, microsecond=0)
)

TASKS = st.sampled_from(["a", "_a", "users/email", "a:b", "a-b", "1a", "a.b", "", "x" * 128, "x" * 129, "é"])
OPTIONS = st.sampled_from(
    ["id=x", "id=1", "id=", "id=x&id=y", "fill=1d2h", "fill=9999999999w", "fill=1", "max=5", "max=0",
     "max=40000", "max=-1", "queue=q:1", "queue=q/1", "jobKey=a%20b", "jobKey=", "jobKey=%00", "jobKey=%ff",
     "jobKey=%ud800", "jobKeyMode=replace", "jobKeyMode=unsafe_dedupe", "priority=-3", "priority=1.5",
     "priority=99999", "tz=Europe/Berlin", "tz=Europe", "tz=../../etc/passwd", "tz=Nowhere", "tz=", "tz=%00",
     "toString=1", "&&", "=", "%"]
)  # fmt: skip
PAYLOADS = st.sampled_from(
    ["", "{}", "{a:1}", "{'a':'b',}", "{/*c*/a:0x1F}", "{a:NaN}", "{a:}", "{a", "[1]", '{"a":"\\ud800"}',
     "{a:1}}", "{" * 20, "{'\\0':1}", '{"\\u0000":1}', "{a:1e999}",
     "{_cron:1}", "{'a':'\\\n'}", "{a:999999999999999999999999999999999999}"]
)  # fmt: skip


@st.composite
def lines(draw: Any) -> str:
    """A line of which most are nearly right, and some are."""
    words = [draw(fields(place)).text for place in range(5)]
    if draw(st.integers(0, 5)) == 0:
        words = [draw(st.sampled_from(["@daily", "@HOURLY", "@reboot", "@", "MON", "* * * *"]))]
    words.append(draw(TASKS))
    options = draw(st.lists(OPTIONS, max_size=3))
    if options:
        words.append("?" + "&".join(options))
    words.append(draw(PAYLOADS))
    line = draw(st.sampled_from([" ", "\t", "  ", "\u00a0"])).join(words)
    if draw(st.integers(0, 3)) == 0:
        place = draw(st.integers(0, len(line)))
        line = line[:place] + draw(st.text(max_size=2)) + line[place + draw(st.integers(0, 2)) :]
    return line

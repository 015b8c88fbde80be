"""Templates: Jinja2 with autoescape, and the values, filters and macros that every page has.

Every template can use the macros of `templates/parts/ui.html` as `ui.NAME`, without an import; that file
says how. Filters: `ago` and `until` (relative time), `instant` and `clock` (exact time), `duration`
(seconds), `number`, `sentence` (capital letter), `short` (one line, cut), `exact` (for values of fields).
Characters that change the direction of text are shown by number in all texts that are not `exact`.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import escape

from .. import charts
from ..answers import Count, Page
from . import texts, times
from .call import Call
from .frame import LayoutContext
from .show import numbered

THEME_COOKIE = "gw_theme"
THEMES = ("light", "dark")


@dataclass(frozen=True, slots=True)
class Viewer:
    """For whom a page is rendered: filters and macros look here."""

    call: Call
    zone: tzinfo
    now: datetime


_viewer: ContextVar[Viewer] = ContextVar("viewer")


@cache
def environment() -> Environment:
    found = Environment(
        loader=PackageLoader("graphile_worker.admin"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    found.filters.update(
        ago=_ago, until=_ago, instant=_instant, clock=_clock, clock_in=_clock_in, duration=times.duration,
        number=number, sentence=sentence, short=short, exact=escape,
    )  # fmt: skip
    found.globals.update(
        url=_url, may=_may, offers=_offers, now=_now, state_of=state_of, time_parts=_time_parts,
        times_in=times.times_in,
        worker_name=_worker_name, texts=texts,
    )  # fmt: skip
    found.globals["ui"] = found.get_template("parts/ui.html").module
    found.globals["charts"] = charts
    return found


def _shown(value: object) -> object:
    return numbered(value) if type(value) is str else value


def render(call: Call, page: Page) -> str:
    """The page as HTML."""
    token = _viewer.set(Viewer(call, call.zone, datetime.now(UTC)))
    try:
        return environment().get_template(page.template).render(frame(call, page), **page.values)
    finally:
        _viewer.reset(token)


def frame(call: Call, page: Page) -> dict[str, Any]:
    """What the layout needs, the same for every page."""
    layout = call.layout or LayoutContext()
    return {
        "call": call,
        "url": call.url,
        "static": call.app.static_url,
        "may": call.may,
        "notice": call.notice,
        "title": page.title,
        "here": page.here,
        "navigation": texts.NAVIGATION,
        "layout": layout,
        "counts": {"failures": layout.failures, "doctor": layout.findings},
        "zone": times.zone_name(call.zone),
        "zone_info": call.zone,
        "theme": theme_of(call),
        "environment_tone": environment_tone(call.app.environment),
    }


def theme_of(call: Call) -> str:
    """The theme that the viewer chose; empty to follow the system."""
    chosen = call.request.cookies.get(THEME_COOKIE, "")
    return chosen if chosen in THEMES else ""


def environment_tone(name: str) -> str:
    return texts.ENVIRONMENT_TONES.get(name.lower(), "accent")


def state_of(state: str) -> tuple[str, str, str]:
    """Words that a phone leaves out, the word and the tone of a state; an unknown one is shown as it is."""
    words, tone = texts.STATES.get(state, (state.replace("_", " ").replace("|", " "), "idle"))
    more, _, word = words.rpartition("|")
    return more, word, tone


def number(value: float | Count | None, places: int = 0) -> str:
    """1,234; counts say their kind."""
    if value is None:
        return times.NONE
    return str(value) if isinstance(value, Count) else f"{value:,.{places}f}"


def short(value: object, longest: int = 200) -> str:
    """One line of text, cut with an ellipsis: for lists."""
    text = " ".join(str("" if value is None else value)[: longest * 4].split())
    return text if len(text) <= longest else text[: longest - 1] + "…"


def sentence(text: str) -> str:
    """With a capital letter, unless the first word is a name from the program, such as send_email."""
    first, _, _ = text.partition(" ")
    return text[:1].upper() + text[1:] if first.rstrip(":,").isalpha() else text


def _worker_name(id: str) -> str:
    """Host and process id of a pool; the id itself if the database does not know it."""
    layout = _viewer.get().call.layout
    return layout.worker_names.get(id, id) if layout else id


def _ago(at: datetime | None) -> str:
    return times.relative(at, _viewer.get().now)


def _instant(at: datetime | None) -> str:
    return times.instant(at, _viewer.get().zone)


def _clock(at: datetime | None) -> str:
    viewer = _viewer.get()
    return times.clock(at, viewer.now, viewer.zone)


def _clock_in(at: datetime, zone: tzinfo) -> str:
    return times.clock(at, _viewer.get().now, zone)


def _time_parts(at: datetime, kind: str) -> dict[str, str]:
    """What `ui.time` shows: the machine's form, the text, and the exact time in both zones."""
    viewer = _viewer.get()
    universal = times.instant(at, UTC)
    local = times.instant(at, viewer.zone)
    return {
        "machine": at.isoformat() if not times.is_never(at, viewer.now) else "",
        "text": _clock(at) if kind == "clock" else _ago(at),
        "title": universal if local == universal else f"{local} · {universal}",
    }


def _url(path: str, **query: object) -> str:
    return _viewer.get().call.url(path, **query)


def _may(permission: Any) -> bool:
    return _viewer.get().call.may(permission)


def _offers(path: str) -> bool:
    call = _viewer.get().call
    return call.app.offers(call.database, path)


def _now(after: float = 0) -> datetime:
    return _viewer.get().now + timedelta(seconds=after)

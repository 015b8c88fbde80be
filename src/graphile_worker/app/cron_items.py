"""The recurring jobs of an app."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ..errors import CrontabError

if TYPE_CHECKING:
    from ..cron import ParsedCronItem


def collect(crontab: str | None, items: Any) -> tuple[ParsedCronItem, ...]:
    """The items of a crontab's text and those defined in code. Raises CrontabError for an invalid one."""
    if items is None:
        items = ()
    if isinstance(items, str | bytes) or not isinstance(items, Iterable):
        raise CrontabError(f"cron_items: expected a list of CronItem, got {items!r}")
    items = tuple(items)
    if crontab is None and not items:
        return ()
    from ..cron import ParsedCronItem, parse_cron_item, parse_crontab
    from ..cron.check import check_identifiers

    found = list(parse_crontab(crontab, source="crontab of the app")) if crontab is not None else []
    for number, item in enumerate(items):
        is_parsed = isinstance(item, ParsedCronItem)
        found.append(item if is_parsed else parse_cron_item(item, source=f"item {number} of cron_items"))
    check_identifiers(found)
    return tuple(found)

"""Where recurring jobs come from: parsed items, crontab text, or a crontab file, in this order."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from os import PathLike
from pathlib import Path

from ..errors import CrontabError
from .crontab import parse_crontab
from .item import ParsedCronItem

logger = logging.getLogger("graphile_worker.cron")


def collect_cron_items(
    *,
    crontab: str | None = None,
    parsed_cron_items: Sequence[ParsedCronItem] | None = None,
    crontab_file: str | PathLike[str] | None = None,
) -> list[ParsedCronItem]:
    """The items a worker runs; text or parsed items take the place of the file."""
    if crontab is not None and parsed_cron_items is not None:
        raise CrontabError("give either `crontab` or `parsed_cron_items`, not both")
    if parsed_cron_items is not None:
        for item in parsed_cron_items:
            if not isinstance(item, ParsedCronItem):
                raise CrontabError(
                    f"parsed_cron_items: found {item!r}; pass items through parse_cron_items or parse_crontab"
                )
        return list(parsed_cron_items)
    if crontab is not None:
        return parse_crontab(crontab, source="crontab option")
    return [] if crontab_file is None else read_crontab_file(crontab_file)


def read_crontab_file(path: str | PathLike[str]) -> list[ParsedCronItem]:
    """The items of a file. One that is missing or unreadable means none; faults raise CrontabError."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        logger.info("no crontab at %s; recurring jobs are off", path)
        return []
    except UnicodeDecodeError as error:
        raise CrontabError(f"{path}: it is not UTF-8 text ({error})") from None
    except OSError as error:
        logger.error("the crontab %s cannot be read (%s); recurring jobs are off", path, error.strerror)
        return []
    return parse_crontab(text, source=str(path))

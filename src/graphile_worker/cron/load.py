"""Loading recurring jobs: from parsed items, crontab text, or a crontab file, in this order."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from os import PathLike
from pathlib import Path

from ..errors import CrontabError
from .check import check_identifiers
from .crontab import parse_crontab
from .item import ParsedCronItem

logger = logging.getLogger("graphile_worker.cron")


def collect_cron_items(
    *,
    crontab: str | None = None,
    parsed_cron_items: Sequence[ParsedCronItem] | None = None,
    crontab_file: str | PathLike[str] | None = None,
    must_exist: bool = False,
) -> list[ParsedCronItem]:
    """The items of a worker; text or parsed items replace the file.

    With `must_exist`, for a file that the user has named, an unreadable file is an error.
    """
    if crontab is not None and parsed_cron_items is not None:
        raise CrontabError("give either `crontab` or `parsed_cron_items`, not both")
    if parsed_cron_items is not None:
        for item in parsed_cron_items:
            if not isinstance(item, ParsedCronItem):
                raise CrontabError(
                    f"parsed_cron_items: got {item!r}; pass items through parse_cron_items or parse_crontab"
                )
        check_identifiers(parsed_cron_items)
        return list(parsed_cron_items)
    if crontab is not None:
        return parse_crontab(crontab, source="crontab option")
    return [] if crontab_file is None else read_crontab_file(crontab_file, must_exist=must_exist)


def read_crontab_file(path: str | PathLike[str], *, must_exist: bool = False) -> list[ParsedCronItem]:
    """The items of a file. Raises CrontabError for invalid lines.

    A missing or unreadable file has no items, unless it `must_exist`.
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        if must_exist:
            raise CrontabError(
                f"{path}: the crontab does not exist; create it, or leave out the option that names it"
            ) from None
        logger.info("no crontab at %s; recurring jobs are off", path)
        return []
    except UnicodeDecodeError as error:
        raise CrontabError(f"{path}: the crontab is not UTF-8 text ({error})") from None
    except OSError as error:
        if must_exist:
            raise CrontabError(f"{path}: the crontab cannot be read: {error.strerror}") from None
        logger.error("the crontab %s cannot be read (%s); recurring jobs are off", path, error.strerror)
        return []
    return parse_crontab(text, source=str(path))

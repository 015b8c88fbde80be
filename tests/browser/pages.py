"""The addresses of all pages of a site."""

from __future__ import annotations

import pytest
from scripts.lively.addresses import addresses, is_about_one_thing, is_page, subject_of

from browser.site import Site
from graphile_worker.admin.table import ROUTES


def page_paths() -> list[str]:
    """The path of every route that shows a page, as the table has it."""
    return sorted({route.path for route in ROUTES if is_page(route)})


def address_of(site: Site, path: str) -> str:
    """The address of a page, with a value that exists in the site's database."""
    return addresses_of(site, path, limit=1)[0]


def addresses_of(site: Site, path: str, *, limit: int = 1000) -> list[str]:
    """The addresses of a page for everything in the site's database that it can show."""
    if not is_about_one_thing(path):
        return [path]
    subject = subject_of(path)
    assert subject is not None, f"scripts/lively/addresses.py does not know a value for {path}"
    name, statement = subject
    values = [row[0] for row in site.rows(f"{statement} limit {limit}")]
    if not values:
        pytest.skip(f"{path}: there is nothing to show")
    return addresses(path, name, values)

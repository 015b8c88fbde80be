"""The documentation builds into a site that loads nothing from the network."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from docs.blocks import ROOT

pytestmark = pytest.mark.timeout(1200)  # slow on a loaded machine

REMOTE = re.compile(r"(?:[a-z]+:)?//", re.IGNORECASE)
REMOTE_IN_CSS = re.compile(r"""(?:url\(\s*|@import\s+)["']?(?:https?:)?//[^)"';]*""", re.IGNORECASE)
LINKS_THAT_LOAD_NOTHING = {"canonical", "next", "prev"}
LOADED_BY_THE_THEME = (
    "mermaid",
    'data-md-component="source"',
)  # a diagram library; GitHub's API for a repo_url


class Assets(HTMLParser):
    """Collects what a browser loads for a page."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag == "link" and values.get("rel") not in LINKS_THAT_LOAD_NOTHING:
            self.addresses.append(values.get("href") or "")
        if tag != "a":
            self.addresses += [values[name] or "" for name in ("src", "srcset", "data") if name in values]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site; broken links and pages outside the navigation are errors."""
    pytest.importorskip("material", reason="mkdocs-material is not installed")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_the_site_builds_without_a_warning(site: Path) -> None:
    assert (site / "index.html").is_file()
    assert (site / "search" / "search_index.json").is_file()


def test_no_page_loads_anything_from_another_host(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assets = Assets()
        assets.feed(text)
        assert assets.addresses, page
        assert not [address for address in assets.addresses if REMOTE.match(address)], page
        for trigger in LOADED_BY_THE_THEME:
            assert trigger not in re.sub(r"<code.*?</code>", "", text, flags=re.DOTALL), page


def test_no_style_sheet_loads_anything_from_another_host(site: Path) -> None:
    sheets = [*site.rglob("*.css"), *site.rglob("*.html")]
    for sheet in sheets:
        assert not REMOTE_IN_CSS.findall(sheet.read_text(encoding="utf-8")), sheet


def test_remote_addresses_would_be_noticed() -> None:
    assets = Assets()
    assets.feed(
        '<link rel="stylesheet" href="https://fonts.example/a.css"><script src="//cdn.example/b.js"></script>'
    )
    assert [bool(REMOTE.match(address)) for address in assets.addresses] == [True, True]
    assert REMOTE_IN_CSS.findall("@font-face { src: url(https://fonts.example/c.woff2) }")
    assert not REMOTE.match("../assets/d.css")


def test_every_reference_page_is_in_the_navigation(site: Path) -> None:
    overview = (site / "index.html").read_text(encoding="utf-8")
    for page in (ROOT / "docs").glob("reference/**/*.md"):
        address = page.relative_to(ROOT / "docs").with_suffix("").as_posix()
        assert f'href="{address}/"' in overview, page

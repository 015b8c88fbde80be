"""The documentation builds into a site that loads nothing from the network."""

from __future__ import annotations

import html
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import yaml
from scripts.website import tables
from scripts.website.synonyms import SYNONYMS

from docs.blocks import ROOT
from support.programs import needed

pytestmark = pytest.mark.timeout(1200)  # slow on a loaded machine

REMOTE = re.compile(r"(?:[a-z]+:)?//", re.IGNORECASE)
REMOTE_IN_CSS = re.compile(r"""(?:url\(\s*|@import\s+)["']?(?:https?:)?//[^)"';]*""", re.IGNORECASE)
LINKS_THAT_LOAD_NOTHING = {"canonical", "next", "prev"}
LOADED_BY_THE_THEME = (
    "mermaid",
    'data-md-component="source"',
)  # a diagram library; GitHub's API for a repo_url
SEARCHES = {
    "timezone": "recurring-jobs",
    "daylight saving": "recurring-jobs",
    "celery beat": "recurring-jobs",
    "dead letter queue": "administration",
    "docker": "start-here",
    "chord": "patterns",
    "workflow": "patterns",
    "fan-in": "patterns",
    "outbox": "patterns",
    "retry": "errors-and-retries",
    "backoff": "errors-and-retries",
    "rate limit": "limits",
    "throttle": "limits",
    "debounce": "job-keys",
    "deduplicate": "unique-jobs",
    "revoke": "cancelling",
    "timeout": "time-limits",
    "result backend": "history-and-results",
    "flower": "admin",
    "multiprocessing": "heavy-work",
    "pgbouncer": "reliability",
    "k8s": "observability/kubernetes",
    "grafana": "observability/prometheus",
    "environment variables": "configuration",
    "zero downtime": "shutdown-and-deploys",
    "pytest": "testing",
    "stuck": "troubleshooting",
    "countdown": "adding-jobs",
    "time zone": "recurring-jobs",
    "named queue": "queues",
    "job key": "job-keys",
    "time limit": "time-limits",
    "dead worker": "reliability",
    "log level": "logging",
    "django": "integrations/django",
    "held batch": "performance",
    "priority": "adding-jobs",
    "pause": "pausing",
    "login": "admin/users",
    "sqlalchemy": "integrations/sqlalchemy",
    "worker options": "reference/options",
    "blocking client": "reference/blocking-client",
    "graceful_shutdown_abort_timeout": "reference/options",
    "max_abort_threshold": "reference/options",
    "concurrency": "how-many-at-once",
    "install": "getting-started",
    "async": "tasks",
    "priorities": "adding-jobs",
    "process pool": "heavy-work",
    "return value": "history-and-results",
    "give up": "errors-and-retries",
    "migrations": "administration",
    "job does not run": "troubleshooting",
    "job runs twice": "troubleshooting",
    "how do I retry a failed job": "errors-and-retries",
    "delete a job": "cancelling",
    "run a job later": "adding-jobs",
    "run a function in the background": "getting-started",
    "wait for a job to finish": "history-and-results",
    "get the result of a job": "history-and-results",
    "limit concurrency per customer": "how-many-at-once",
    "one job at a time": "queues",
    "pause a queue": "pausing",
    "kill a running job": "cancelling",
    "cron every 5 minutes": "recurring-jobs",
    "add a job from SQL": "adding-jobs",
    "too many connections": "configuration",
    "lost jobs": "reliability",
}
"""What people type, and the page that answers."""
ALIKE = {
    "how do I pause a queue?": "pause queue",
    "what is the time limit": "time limit",
    "a": "a",
    "not": "not",
}
"""Questions, and what the search looks for."""
LONGEST_LIST = 10


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


def test_no_page_shows_a_backslash_before_a_pipe(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = re.sub(r"<pre.*?</pre>", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        shown = html.unescape(re.sub(r"<[^>]+>", "", text))
        assert "\\|" not in shown, page


def test_the_types_of_a_table_are_shown_whole(site: Path) -> None:
    text = (site / "reference" / "options" / "index.html").read_text(encoding="utf-8")
    assert "<code>str | None</code>" in text


def test_pipes_change_in_the_code_of_tables_alone() -> None:
    shown = tables.on_page_markdown(r"""| `a \| b` | a \| b | ``c \| d`` |
a `\|` outside
```text
| `a \| b` |
```
| `a \| b` |""")
    assert (
        shown
        == r"""| `a | b` | a \| b | ``c | d`` |
a `\|` outside
```text
| `a \| b` |
```
| `a | b` |"""
    )


def test_names_in_tables_are_not_broken(site: Path) -> None:
    rules = (site / "stylesheets" / "tables.css").read_text(encoding="utf-8")
    assert "word-break: normal" in rules
    options = (site / "reference" / "options" / "index.html").read_text(encoding="utf-8")
    assert '<code class="whole">max_pool_size</code>' in options
    assert "<code>graceful_<wbr>shutdown_<wbr>abort_<wbr>timeout</code>" in options
    for page in site.rglob("*/index.html"):
        assert "stylesheets/tables.css" in page.read_text(encoding="utf-8"), page


def _found(site: Path, *queries: str) -> dict[str, list[str]]:
    """The pages that the search of the site finds for each query, the best first."""
    done = subprocess.run(
        [needed("node"), Path(__file__).with_name("search.cjs"), site, *queries],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, list[str]] = json.loads(done.stdout)
    return found


def test_people_find_the_page_by_their_own_word(site: Path) -> None:
    found = _found(site, *SEARCHES)
    missed = {
        words: found[words][:5] for words, page in SEARCHES.items() if f"{page}/" not in found[words][:3]
    }
    assert not missed


def test_small_words_of_a_question_are_left_out(site: Path) -> None:
    found = _found(site, *ALIKE, *ALIKE.values())
    for question, words in ALIKE.items():
        assert found[question] == found[words] != [], question


def test_the_index_has_every_synonym(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    tags = {entry["location"]: entry.get("tags", []) for entry in index["docs"]}
    for page, words in SYNONYMS.items():
        address = page.removesuffix(".md").removesuffix("index").rstrip("/") + "/"
        assert set(words) <= set(tags[address]), page


def _sections(entries: list[Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], list[Any]]]:
    yield path, entries
    for entry in entries:
        for title, inner in entry.items() if isinstance(entry, dict) else ():
            if isinstance(inner, list):
                yield from _sections(inner, (*path, title))


def test_the_navigation_has_two_levels_of_short_lists() -> None:
    # Its file has no tags of Python, which a safe loader refuses.
    navigation = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    for path, entries in _sections(navigation):
        assert len(path) <= 2, path
        assert len(entries) <= LONGEST_LIST or path == ("Maintainers", "Design records"), path
        for entry in entries:
            page = entry if isinstance(entry, str) else str(*entry.values())
            if page.startswith("design/"):
                assert path[0] == "Maintainers", page

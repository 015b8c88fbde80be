"""Links between pages point to existing files and headings, and every page is linked from somewhere."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from docs.blocks import ROOT, name_of, pages, prose_of

LINK = re.compile(r"(?<!!)\[[^\]]*\]\((?P<target>[^)\s]+)\)")
LINKING = [
    *pages(),
    *(ROOT / name for name in ("ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")),
]


def _links(page: Path) -> list[tuple[int, str]]:
    found = []
    for number, line in prose_of(page.read_text()):
        without_code = re.sub(r"`[^`]*`", "", line)
        found += [(number, link["target"]) for link in LINK.finditer(without_code)]
        # A link whose words are code still is a link.
        found += [(number, target) for target in re.findall(r"\[`[^`]*`\]\(([^)\s]+)\)", line)]
    return found


def _anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as mkdocs and code hosts make them."""
    anchors = set()
    for _, line in prose_of(page.read_text()):
        anchors |= set(re.findall(r'<a id="([^"]+)"></a>', line))  # the former name of a heading
        if heading := re.match(r"#{1,6} (.+)", line):
            words = re.sub(r"[^\w\s-]", "", heading[1].replace("`", "")).strip().lower()
            anchors.add(re.sub(r"[\s]+", "-", words))
    return anchors


@pytest.mark.parametrize("page", LINKING, ids=name_of)
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    for number, link in _links(page):
        if link.startswith(("https://", "http://", "mailto:")):
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        place = f"{name_of(page)}:{number}: {link}"
        assert target.exists(), place
        if page.is_relative_to(ROOT / "docs"):
            assert target.is_relative_to(ROOT / "docs"), f"{place} leads out of the documentation"
        if anchor:
            assert anchor in _anchors(target), place


def test_every_page_of_the_documentation_can_be_reached_from_its_first() -> None:
    reached: set[Path] = set()
    waiting = [
        ROOT / "docs" / "index.md",
        *ROOT.glob("docs/reference/**/*.md"),
    ]  # those are in the navigation
    while waiting:
        page = waiting.pop()
        if page in reached:
            continue
        reached.add(page)
        for _, link in _links(page):
            target = (page.parent / link.partition("#")[0]).resolve()
            if target.suffix == ".md" and target.is_file():
                waiting.append(target)
    missing = {page for page in pages() if page.is_relative_to(ROOT / "docs")} - reached
    assert not missing, sorted(map(name_of, missing))


def test_every_path_that_the_architecture_names_exists() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    package = ROOT / "src" / "graphile_worker"
    named = set(re.findall(r"`((?:[a-z_]+/)+(?:[a-z_]+\.(?:py|sql))?)`", text))
    assert len(named) > 60
    missing = {name for name in named if not ((package / name).exists() or (ROOT / name).exists())}
    assert missing == set()


def test_the_architecture_fits_in_200_lines() -> None:
    assert len((ROOT / "ARCHITECTURE.md").read_text().splitlines()) <= 200


def test_the_architecture_draws_every_room_in_the_order_of_the_import_contract() -> None:
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]
    layers = [line.removeprefix("__main__ | ") for line in contract["layers"]]
    picture = (ROOT / "ARCHITECTURE.md").read_text().partition("## The rooms")[2]
    drawn = re.findall(
        r"^    (\w+(?: \| \w+)?)  +\S", picture.partition("The engine itself")[0], re.MULTILINE
    )
    assert drawn == layers

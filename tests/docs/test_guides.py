"""The guides for those who move from another library have the same parts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.blocks import ROOT

GUIDES = sorted((ROOT / "docs").glob("moving-from-*.md"))
NODE = "moving-from-node"
"""It is longer, because one database is shared."""


def test_there_are_as_many_guides_as_libraries() -> None:
    assert len(GUIDES) == 8


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.stem)
def test_a_guide_says_what_either_side_has_alone(guide: Path) -> None:
    headings = re.findall(r"^## (.+)", guide.read_text(), re.MULTILINE)
    assert len(set(headings)) == len(headings)
    theirs = [heading for heading in headings if heading.endswith("has and this library does not")]
    ours = {"What you gain", *(each for each in headings if each.startswith("What this library has and"))}
    assert len(theirs) == 1
    assert ours & set(headings)


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.stem)
@pytest.mark.parametrize(
    "topic", ["admin/", "heavy-work.md", "unique-jobs.md", "django.md", "history-and-results.md"]
)
def test_a_guide_leads_to_what_came_later(guide: Path, topic: str) -> None:
    assert f"]({topic}" in guide.read_text() or f"](integrations/{topic}" in guide.read_text()


@pytest.mark.parametrize(
    "guide", [each for each in GUIDES if each.stem != NODE], ids=lambda guide: guide.stem
)
def test_a_guide_has_an_example_and_ends_with_the_way(guide: Path) -> None:
    headings = re.findall(r"^## (.+)", guide.read_text(), re.MULTILINE)
    assert headings[:2] == ["Terms", "An example"]
    assert headings[-1] == "Moving over"

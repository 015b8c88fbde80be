"""`make check` notices phrases that read like a translation, where users read them."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts import phrases


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty project in place of this one."""
    monkeypatch.setattr(phrases, "ROOT", tmp_path)
    monkeypatch.setattr(phrases, "PACKAGE", tmp_path / "src")
    (tmp_path / "docs").mkdir()
    (tmp_path / "src" / "cli").mkdir(parents=True)
    (tmp_path / "README.md").write_text("A job queue.\n")
    return tmp_path


def test_nothing_is_reported_where_there_is_nothing(root: Path) -> None:
    assert phrases.main() is None


def test_a_phrase_over_two_lines_of_a_page_is_found(root: Path) -> None:
    (root / "docs" / "a.md").write_text("Fine.\n\nThe job counts\nas failed.\n")
    assert phrases.main() == (
        "docs/a.md:3: “counts as”; rather: is, is treated as\n1 phrases to write differently"
    )


def test_code_and_links_of_a_page_are_left_out(root: Path) -> None:
    (root / "docs" / "a.md").write_text("`beside`, [page](beside-it.md)\n```text\nbeside\n```\n")
    assert phrases.main() is None


def test_messages_and_help_are_searched_and_comments_are_not(root: Path) -> None:
    (root / "src" / "a.py").write_text('"""Goes on."""\n# goes on\nlog("the worker cannot "\n    "go on")\n')
    (root / "src" / "cli" / "b.py").write_text('def pause():\n    """Running jobs go on."""\n')
    assert (phrases.main() or "").splitlines() == [
        "src/a.py:3: “go on”; rather: continues, finishes",
        "src/cli/b.py:2: “go on”; rather: continues, finishes",
        "2 phrases to write differently",
    ]


def test_texts_of_the_dashboard_are_searched_and_its_comments_are_not(root: Path) -> None:
    (root / "src" / "a.html").write_text('{# goes on #}\n<p title="It goes on">Fine.</p>\n')
    (root / "src" / "b.js").write_text('// goes on\nsay("It goes on"); /* goes on */\n')
    assert (phrases.main() or "").splitlines() == [
        "src/a.html:2: “goes on”; rather: continues, finishes",
        "src/b.js:2: “goes on”; rather: continues, finishes",
        "2 phrases to write differently",
    ]


def test_every_page_is_searched(root: Path) -> None:
    for name in ("CHANGELOG.md", "docs/design/0001.md", "examples/shop/README.md"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("A verdict.\n")
    assert (phrases.main() or "").splitlines() == [
        "CHANGELOG.md:1: “verdict”; rather: reason, explanation",
        "docs/design/0001.md:1: “verdict”; rather: reason, explanation",
        "examples/shop/README.md:1: “verdict”; rather: reason, explanation",
        "3 phrases to write differently",
    ]

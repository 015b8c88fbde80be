"""`make observe` prints what the walk-through shows, with one trace id for everything."""

from __future__ import annotations

import re
import subprocess
import sys

from docs.blocks import ROOT, blocks_of
from support.command_line import clean_environment

PAGE = ROOT / "docs" / "observability" / "walkthrough.md"


def skeleton(printed: str) -> list[str]:
    """The lines without what differs from run to run: ids, times, and statements of the driver."""
    lines = [line for line in printed.strip().splitlines() if " CLIENT " not in line]
    return [re.sub(r"[0-9a-f]{16,32}", "ID", re.sub(r" +[\d.]+ ms", " N ms", line)) for line in lines]


def test_the_walk_through_shows_what_the_program_prints(empty_database_url: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "examples.observability"],
        cwd=ROOT,
        env=clean_environment(DATABASE_URL=empty_database_url),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    shown = next(block.text for block in blocks_of(PAGE) if block.language == "text")
    assert skeleton(done.stdout) == skeleton(shown)
    assert len(set(re.findall(r"\b[0-9a-f]{32}\b", done.stdout))) == 1

"""Several changes of a row become one job, and the job runs."""

from __future__ import annotations

import os
from typing import Any


def test_many_changes_are_one_job(example: Any) -> None:
    example.run()
    listed = example.run()
    assert listed.count("count_words:1") == 1
    assert listed.count("count_words:") == 1
    shown = example.run()
    assert "article 1 has 10 words" in shown
    assert [part.strip() for part in _row(shown, "About jobs")] == ["About jobs", "10"]
    assert example.is_done


def _row(text: str, start: str) -> list[str]:
    return next(line for line in text.split(os.linesep) if line.strip().startswith(start)).split("|")

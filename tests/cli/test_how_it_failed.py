"""What `list`, `show` and `add --wait` say about a job that was given up on its first attempt."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.command_line import Call
from support.worker_process import starting

TASK = "from graphile_worker import GiveUp\n\n\ndef charge():\n    raise GiveUp('the card is stolen')\n"
GAVE_UP = "gave up on attempt 1 of 4"


@pytest.fixture
def tasks(place: Path) -> Path:
    (place / "tasks").mkdir()
    (place / "tasks" / "charge.py").write_text(TASK)
    return place / "tasks"


def test_list_and_show(gw: Call, tasks: Path) -> None:
    gw("add", "charge", "--max-attempts", "4").check()
    gw("--once").check()
    listed = gw("list").check().out
    assert GAVE_UP in listed
    assert "4/4" not in listed
    shown = gw("show", "1").check().out
    assert GAVE_UP in shown
    assert "all 4 attempts" not in shown
    (job,) = json.loads(gw("list", "--json").check().out)
    assert (job["attempts"], job["attempts_made"]) == (4, 1)


def test_add_and_wait(gw: Call, tasks: Path, database_url: str) -> None:
    with starting(tasks.parent) as start:
        start(url=database_url, tasks=tasks).ready()
        result = gw("add", "charge", "--max-attempts", "4", "--wait", "--timeout", "60s")
    assert result.status == 1
    assert f"Job 1 failed permanently, {GAVE_UP}: " in result.err
